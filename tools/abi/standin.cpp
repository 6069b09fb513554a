// A program as users of ACL write them: the vendor's runtime headers, the operators' declarations, the vendor's library names on the linker's
// command line. With the stand-in under those names it has to run on any machine; nothing here knows of it.
//
// Allocates, copies, adds (aclnnAdd) and multiplies (aclnnMm) on one stream, hands the result to a second stream through an event,
// measures with events, and compares every number. Prints ok, or what failed and ACL's message.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "acl/acl.h"
#include "aclnn_list.h"

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        const int status_ = (call);                                                                     \
        if (status_ != 0) {                                                                             \
            const char* message_ = aclGetRecentErrMsg();                                                \
            std::fprintf(stderr, "%s: %d: %s\n", #call, status_, message_ ? message_ : "no message");   \
            std::exit(1);                                                                               \
        }                                                                                               \
    } while (0)

namespace {

const int64_t ROWS = 33, INNER = 70, COLUMNS = 19;

struct Matrix {
    std::vector<float> host;
    int64_t dims[2];
    void* device = nullptr;
    aclTensor* tensor = nullptr;

    Matrix(int64_t rows, int64_t columns) : host(rows * columns), dims{rows, columns} {
        const int64_t strides[2] = {columns, 1};
        CHECK(aclrtMalloc(&device, bytes(), ACL_MEM_MALLOC_HUGE_FIRST));
        tensor = aclCreateTensor(dims, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims, 2, device);
        if (tensor == nullptr) {
            std::fprintf(stderr, "aclCreateTensor: no tensor\n");
            std::exit(1);
        }
    }
    ~Matrix() {
        CHECK(aclDestroyTensor(tensor));
        CHECK(aclrtFree(device));
    }
    Matrix(const Matrix&) = delete;
    size_t bytes() const { return host.size() * sizeof(float); }
    void fill(float scale) {
        for (size_t i = 0; i < host.size(); i++) host[i] = scale * (float(i * 7 % 13) - 6.0f);
    }
    void upload() { CHECK(aclrtMemcpy(device, bytes(), host.data(), bytes(), ACL_MEMCPY_HOST_TO_DEVICE)); }
};

struct Workspace {
    void* memory = nullptr;
    explicit Workspace(uint64_t bytes) {
        if (bytes > 0) CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    ~Workspace() {
        if (memory != nullptr) CHECK(aclrtFree(memory));
    }
};

int compare(const char* what, const std::vector<float>& got, const std::vector<double>& right) {
    for (size_t i = 0; i < got.size(); i++) {
        if (!(std::fabs(got[i] - right[i]) <= 1e-4 * (1.0 + std::fabs(right[i])))) {
            std::fprintf(stderr, "%s[%zu] is %g, not %g\n", what, i, got[i], right[i]);
            return 1;
        }
    }
    return 0;
}

}  // namespace

int main() {
    CHECK(aclInit(nullptr));
    uint32_t count = 0;
    CHECK(aclrtGetDeviceCount(&count));
    CHECK(aclrtSetDevice(0));
    const char* soc = aclrtGetSocName();
    std::printf("%u device(s), %s\n", count, soc ? soc : "nameless");

    int wrong = 0;
    {
        aclrtStream stream = nullptr, second = nullptr;
        aclrtEvent start = nullptr, end = nullptr;
        CHECK(aclrtCreateStream(&stream));
        CHECK(aclrtCreateStream(&second));
        CHECK(aclrtCreateEventWithFlag(&start, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE));
        CHECK(aclrtCreateEventWithFlag(&end, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE));

        Matrix a(ROWS, INNER), b(ROWS, INNER), sum(ROWS, INNER), weight(INNER, COLUMNS), product(ROWS, COLUMNS);
        a.fill(0.5f);
        b.fill(-0.25f);
        weight.fill(0.125f);
        a.upload();
        b.upload();
        weight.upload();

        CHECK(aclrtRecordEvent(start, stream));
        float two = 2.0f;
        aclScalar* alpha = aclCreateScalar(&two, ACL_FLOAT);
        uint64_t bytes = 0;
        aclOpExecutor* executor = nullptr;
        CHECK(aclnnAddGetWorkspaceSize(a.tensor, b.tensor, alpha, sum.tensor, &bytes, &executor));
        Workspace forAdd(bytes);
        CHECK(aclnnAdd(forAdd.memory, bytes, executor, stream));
        CHECK(aclnnMmGetWorkspaceSize(sum.tensor, weight.tensor, product.tensor, KEEP_DTYPE, &bytes, &executor));
        Workspace forMm(bytes);
        CHECK(aclnnMm(forMm.memory, bytes, executor, stream));
        CHECK(aclrtRecordEvent(end, stream));

        // The copies wait on another stream for what the first one computes.
        void *pinnedSum = nullptr, *pinnedProduct = nullptr;
        CHECK(aclrtMallocHost(&pinnedSum, sum.bytes()));
        CHECK(aclrtMallocHost(&pinnedProduct, product.bytes()));
        CHECK(aclrtStreamWaitEvent(second, end));
        CHECK(aclrtMemcpyAsync(pinnedSum, sum.bytes(), sum.device, sum.bytes(), ACL_MEMCPY_DEVICE_TO_HOST, second));
        CHECK(aclrtMemcpyAsync(pinnedProduct, product.bytes(), product.device, product.bytes(), ACL_MEMCPY_DEVICE_TO_HOST, second));
        CHECK(aclrtSynchronizeEvent(end));
        CHECK(aclrtSynchronizeStream(second));
        CHECK(aclrtSynchronizeStream(stream));
        float ms = -1.0f;
        CHECK(aclrtEventElapsedTime(&ms, start, end));
        aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        CHECK(aclrtQueryEventStatus(end, &status));
        if (!(ms >= 0.0f) || status != ACL_EVENT_RECORDED_STATUS_COMPLETE) {
            std::fprintf(stderr, "the event is in state %d after %g ms\n", int(status), ms);
            wrong++;
        }
        std::memcpy(sum.host.data(), pinnedSum, sum.bytes());
        std::memcpy(product.host.data(), pinnedProduct, product.bytes());

        std::vector<double> rightSum(sum.host.size()), rightProduct(product.host.size(), 0.0);
        for (size_t i = 0; i < rightSum.size(); i++) rightSum[i] = double(a.host[i]) + 2.0 * b.host[i];
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t k = 0; k < INNER; k++)
                for (int64_t c = 0; c < COLUMNS; c++)
                    rightProduct[r * COLUMNS + c] += rightSum[r * INNER + k] * weight.host[k * COLUMNS + c];
        wrong += compare("sum", sum.host, rightSum);
        wrong += compare("product", product.host, rightProduct);

        CHECK(aclDestroyScalar(alpha));
        CHECK(aclrtFreeHost(pinnedSum));
        CHECK(aclrtFreeHost(pinnedProduct));
        CHECK(aclrtDestroyEvent(start));
        CHECK(aclrtDestroyEvent(end));
        CHECK(aclrtDestroyStream(second));
        CHECK(aclrtDestroyStream(stream));
    }
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    if (wrong == 0) std::puts("ok");
    return wrong == 0 ? 0 : 1;
}
