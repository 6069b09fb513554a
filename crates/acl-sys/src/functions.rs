//! The one list of ACL functions: name, signature, library group.
//!
//! [`acl_functions!`] hands the list to a macro of the caller's choice. From it come the table ([`crate::AclApi`]), the
//! loader, the stubs, the [`crate::AclFn`] and [`crate::AclOp`] names, and in other rooms the embedded device's table, fault
//! trampolines, exported C names and the typed first phase of an operator call. A function exists here or nowhere.
//!
//! `fn` rows give the whole signature. `op` rows give the two names of a two-phase operator and the arguments that come
//! before `uint64_t* workspaceSize, aclOpExecutor** executor`.

/// Calls `$callback! { functions { … } operators { … } }` with every function this project binds.
#[macro_export]
macro_rules! acl_functions {
    ($callback:ident) => {
        $callback! {
        functions {
            fn Ascendcl aclInit(config_path: *const c_char) -> aclError;
            fn Ascendcl aclFinalize() -> aclError;
            fn Ascendcl aclGetRecentErrMsg() -> *const c_char;
            fn Ascendcl aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> aclError;
            fn Ascendcl aclsysGetCANNVersion(name: aclCANNPackageName, version: *mut aclCANNPackageVersion) -> aclError;
            fn Ascendcl aclrtGetSocName() -> *const c_char;
            fn Ascendcl aclrtGetDeviceCount(count: *mut u32) -> aclError;
            fn Ascendcl aclrtSetDevice(device_id: i32) -> aclError;
            fn Ascendcl aclrtGetDevice(device_id: *mut i32) -> aclError;
            fn Ascendcl aclrtResetDevice(device_id: i32) -> aclError;
            fn Ascendcl aclrtResetDeviceForce(device_id: i32) -> aclError;
            fn Ascendcl aclrtSynchronizeDevice() -> aclError;
            fn Ascendcl aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
            fn Ascendcl aclrtDeviceCanAccessPeer(can_access: *mut i32, device_id: i32, peer_device_id: i32) -> aclError;
            fn Ascendcl aclrtDeviceEnablePeerAccess(peer_device_id: i32, flags: u32) -> aclError;
            fn Ascendcl aclrtDeviceDisablePeerAccess(peer_device_id: i32) -> aclError;
            fn Ascendcl aclrtMalloc(dev_ptr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
            fn Ascendcl aclrtFree(dev_ptr: *mut c_void) -> aclError;
            fn Ascendcl aclrtMallocHost(host_ptr: *mut *mut c_void, size: usize) -> aclError;
            fn Ascendcl aclrtFreeHost(host_ptr: *mut c_void) -> aclError;
            fn Ascendcl aclrtMemcpy(dst: *mut c_void, dest_max: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind) -> aclError;
            fn Ascendcl aclrtMemcpyAsync(dst: *mut c_void, dest_max: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
            fn Ascendcl aclrtMemset(dev_ptr: *mut c_void, max_count: usize, value: i32, count: usize) -> aclError;
            fn Ascendcl aclrtMemsetAsync(dev_ptr: *mut c_void, max_count: usize, value: i32, count: usize, stream: aclrtStream) -> aclError;
            fn Ascendcl aclrtMemGetAllocationGranularity(prop: *mut aclrtPhysicalMemProp, option: aclrtMemGranularityOptions, granularity: *mut usize) -> aclError;
            fn Ascendcl aclrtReserveMemAddress(virt_ptr: *mut *mut c_void, size: usize, alignment: usize, expect_ptr: *mut c_void, flags: u64) -> aclError;
            fn Ascendcl aclrtReleaseMemAddress(virt_ptr: *mut c_void) -> aclError;
            fn Ascendcl aclrtMallocPhysical(handle: *mut aclrtDrvMemHandle, size: usize, prop: *const aclrtPhysicalMemProp, flags: u64) -> aclError;
            fn Ascendcl aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError;
            fn Ascendcl aclrtMapMem(virt_ptr: *mut c_void, size: usize, offset: usize, handle: aclrtDrvMemHandle, flags: u64) -> aclError;
            fn Ascendcl aclrtUnmapMem(virt_ptr: *mut c_void) -> aclError;
            fn Ascendcl aclrtCreateStream(stream: *mut aclrtStream) -> aclError;
            fn Ascendcl aclrtDestroyStream(stream: aclrtStream) -> aclError;
            fn Ascendcl aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
            fn Ascendcl aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
            fn Ascendcl aclrtCreateEvent(event: *mut aclrtEvent) -> aclError;
            fn Ascendcl aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
            fn Ascendcl aclrtDestroyEvent(event: aclrtEvent) -> aclError;
            fn Ascendcl aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
            fn Ascendcl aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;
            fn Ascendcl aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError;
            fn Ascendcl aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
            fn Ascendcl aclrtEventElapsedTime(ms: *mut f32, start: aclrtEvent, end: aclrtEvent) -> aclError;
            fn Ascendcl aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
            fn Ascendcl aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, model: *mut aclmdlRI) -> aclError;
            fn Ascendcl aclmdlRICaptureEnd(stream: aclrtStream, model: *mut aclmdlRI) -> aclError;
            fn Ascendcl aclmdlRIExecuteAsync(model: aclmdlRI, stream: aclrtStream) -> aclError;
            fn Ascendcl aclmdlRIDestroy(model: aclmdlRI) -> aclError;
            fn Nnopbase aclCreateTensor(view_dims: *const i64, view_dims_num: u64, data_type: aclDataType, stride: *const i64, offset: i64, format: aclFormat, storage_dims: *const i64, storage_dims_num: u64, tensor_data: *mut c_void) -> *mut aclTensor;
            fn Nnopbase aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus;
            fn Nnopbase aclCreateScalar(value: *mut c_void, data_type: aclDataType) -> *mut aclScalar;
            fn Nnopbase aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus;
            fn Nnopbase aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray;
            fn Nnopbase aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus;
            fn Nnopbase aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList;
            fn Nnopbase aclDestroyTensorList(array: *const aclTensorList) -> aclnnStatus;
            fn Nnopbase aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus;
            fn Nnopbase aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus;
            fn Opapi aclnnCalculateMatmulWeightSizeV2(tensor_shape: *const aclIntArray, data_type: aclDataType, weight_tensor_size: *mut u64) -> aclnnStatus;
        }
        operators {
            op aclnnAbs aclnnAbsGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnAdd aclnnAddGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar, out: *mut aclTensor);
            op aclnnAddRmsNorm aclnnAddRmsNormGetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, gamma: *const aclTensor, epsilon: f64, y_out: *mut aclTensor, rstd_out: *mut aclTensor, x_out: *mut aclTensor);
            op aclnnAdds aclnnAddsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor);
            op aclnnArange aclnnArangeGetWorkspaceSize(start: *const aclScalar, end: *const aclScalar, step: *const aclScalar, out: *mut aclTensor);
            op aclnnArgMax aclnnArgMaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, keepdim: bool, out: *mut aclTensor);
            op aclnnArgsort aclnnArgsortGetWorkspaceSize(self_: *const aclTensor, dim: i64, descending: bool, out: *mut aclTensor);
            op aclnnAvgPool2d aclnnAvgPool2dGetWorkspaceSize(self_: *const aclTensor, kernel_size: *const aclIntArray, strides: *const aclIntArray, paddings: *const aclIntArray, ceil_mode: bool, count_include_pad: bool, divisor_override: i64, cube_math_type: i8, out: *mut aclTensor);
            op aclnnBatchMatMul aclnnBatchMatMulGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor, cube_math_type: i8);
            op aclnnCast aclnnCastGetWorkspaceSize(self_: *const aclTensor, dtype: aclDataType, out: *mut aclTensor);
            op aclnnCat aclnnCatGetWorkspaceSize(tensors: *const aclTensorList, dim: i64, out: *mut aclTensor);
            op aclnnCeil aclnnCeilGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnClamp aclnnClampGetWorkspaceSize(self_: *const aclTensor, clip_value_min: *const aclScalar, clip_value_max: *const aclScalar, out: *mut aclTensor);
            op aclnnClampMin aclnnClampMinGetWorkspaceSize(self_: *const aclTensor, clip_value_min: *const aclScalar, out: *mut aclTensor);
            op aclnnConstantPadNd aclnnConstantPadNdGetWorkspaceSize(self_: *const aclTensor, pad: *const aclIntArray, value: *const aclScalar, out: *mut aclTensor);
            op aclnnConvolution aclnnConvolutionGetWorkspaceSize(input: *const aclTensor, weight: *const aclTensor, bias: *const aclTensor, stride: *const aclIntArray, padding: *const aclIntArray, dilation: *const aclIntArray, transposed: bool, output_padding: *const aclIntArray, groups: i64, output: *mut aclTensor, cube_math_type: i8);
            op aclnnCos aclnnCosGetWorkspaceSize(input: *const aclTensor, out: *mut aclTensor);
            op aclnnCumsum aclnnCumsumGetWorkspaceSize(self_: *const aclTensor, dim: i64, dtype: aclDataType, out: *mut aclTensor);
            op aclnnDiv aclnnDivGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
            op aclnnDivs aclnnDivsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor);
            op aclnnElu aclnnEluGetWorkspaceSize(self_: *const aclTensor, alpha: *const aclScalar, scale: *const aclScalar, input_scale: *const aclScalar, out: *mut aclTensor);
            op aclnnEmbedding aclnnEmbeddingGetWorkspaceSize(weight: *const aclTensor, indices: *const aclTensor, out: *mut aclTensor);
            op aclnnEqTensor aclnnEqTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
            op aclnnErf aclnnErfGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnExp aclnnExpGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnExpand aclnnExpandGetWorkspaceSize(self_: *const aclTensor, size: *const aclIntArray, out: *mut aclTensor);
            op aclnnExpm1 aclnnExpm1GetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnFastGelu aclnnFastGeluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnFloor aclnnFloorGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnFusedInferAttentionScoreV2 aclnnFusedInferAttentionScoreV2GetWorkspaceSize(query: *const aclTensor, key: *const aclTensorList, value: *const aclTensorList, pse_shift_optional: *const aclTensor, atten_mask_optional: *const aclTensor, actual_seq_lengths_optional: *const aclIntArray, actual_seq_lengths_kv_optional: *const aclIntArray, deq_scale1_optional: *const aclTensor, quant_scale1_optional: *const aclTensor, deq_scale2_optional: *const aclTensor, quant_scale2_optional: *const aclTensor, quant_offset2_optional: *const aclTensor, antiquant_scale_optional: *const aclTensor, antiquant_offset_optional: *const aclTensor, block_table_optional: *const aclTensor, query_padding_size_optional: *const aclTensor, kv_padding_size_optional: *const aclTensor, key_antiquant_scale_optional: *const aclTensor, key_antiquant_offset_optional: *const aclTensor, value_antiquant_scale_optional: *const aclTensor, value_antiquant_offset_optional: *const aclTensor, key_shared_prefix_optional: *const aclTensor, value_shared_prefix_optional: *const aclTensor, actual_shared_prefix_len_optional: *const aclIntArray, num_heads: i64, scale_value: f64, pre_tokens: i64, next_tokens: i64, input_layout: *const c_char, num_key_value_heads: i64, sparse_mode: i64, inner_precise: i64, block_size: i64, antiquant_mode: i64, softmax_lse_flag: bool, key_antiquant_mode: i64, value_antiquant_mode: i64, attention_out: *mut aclTensor, softmax_lse: *mut aclTensor);
            op aclnnGatherV2 aclnnGatherV2GetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor, out: *mut aclTensor);
            op aclnnGeGluV3 aclnnGeGluV3GetWorkspaceSize(self_: *const aclTensor, dim: i64, approximate: i64, activate_left: bool, out: *mut aclTensor, out_gelu: *mut aclTensor);
            op aclnnGelu aclnnGeluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnGeluV2 aclnnGeluV2GetWorkspaceSize(x: *const aclTensor, approximate: i64, y: *mut aclTensor);
            op aclnnGroupNorm aclnnGroupNormGetWorkspaceSize(self_: *const aclTensor, gamma: *const aclTensor, beta: *const aclTensor, n: i64, c: i64, h_x_w: i64, group: i64, eps: f64, out: *mut aclTensor, mean_out: *mut aclTensor, rstd_out: *mut aclTensor);
            op aclnnGroupedMatmulV2 aclnnGroupedMatmulV2GetWorkspaceSize(x: *const aclTensorList, weight: *const aclTensorList, bias: *const aclTensorList, scale: *const aclTensorList, offset: *const aclTensorList, antiquant_scale: *const aclTensorList, antiquant_offset: *const aclTensorList, group_list: *const aclIntArray, split_item: i64, group_type: i64, y: *const aclTensorList);
            op aclnnGroupedMatmulV3 aclnnGroupedMatmulV3GetWorkspaceSize(x: *const aclTensorList, weight: *const aclTensorList, bias: *const aclTensorList, scale: *const aclTensorList, offset: *const aclTensorList, antiquant_scale: *const aclTensorList, antiquant_offset: *const aclTensorList, group_list: *const aclTensor, split_item: i64, group_type: i64, y: *const aclTensorList);
            op aclnnGtScalar aclnnGtScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor);
            op aclnnHardsigmoid aclnnHardsigmoidGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnHardswish aclnnHardswishGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnIm2col aclnnIm2colGetWorkspaceSize(self_: *const aclTensor, kernel_size: *const aclIntArray, dilation: *const aclIntArray, padding: *const aclIntArray, stride: *const aclIntArray, out: *mut aclTensor);
            op aclnnIndexSelect aclnnIndexSelectGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor, out: *mut aclTensor);
            op aclnnInplaceAdd aclnnInplaceAddGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor, alpha: *const aclScalar);
            op aclnnInplaceAdds aclnnInplaceAddsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar, alpha: *const aclScalar);
            op aclnnInplaceClampMax aclnnInplaceClampMaxGetWorkspaceSize(self_ref: *mut aclTensor, clip_value_max: *const aclScalar);
            op aclnnInplaceCopy aclnnInplaceCopyGetWorkspaceSize(self_ref: *mut aclTensor, src: *const aclTensor);
            op aclnnInplaceCos aclnnInplaceCosGetWorkspaceSize(self_ref: *mut aclTensor);
            op aclnnInplaceDiv aclnnInplaceDivGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor);
            op aclnnInplaceDivs aclnnInplaceDivsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar);
            op aclnnInplaceEqTensor aclnnInplaceEqTensorGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor);
            op aclnnInplaceExp aclnnInplaceExpGetWorkspaceSize(self_ref: *mut aclTensor);
            op aclnnInplaceFillScalar aclnnInplaceFillScalarGetWorkspaceSize(self_ref: *mut aclTensor, value: *const aclScalar);
            op aclnnInplaceIndexCopy aclnnInplaceIndexCopyGetWorkspaceSize(self_ref: *mut aclTensor, dim: i64, index: *const aclTensor, source: *const aclTensor);
            op aclnnInplaceMul aclnnInplaceMulGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor);
            op aclnnInplaceMuls aclnnInplaceMulsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar);
            op aclnnInplacePowTensorTensor aclnnInplacePowTensorTensorGetWorkspaceSize(self_: *mut aclTensor, exponent: *const aclTensor);
            op aclnnInplaceSin aclnnInplaceSinGetWorkspaceSize(self_ref: *mut aclTensor);
            op aclnnInplaceSub aclnnInplaceSubGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclTensor, alpha: *const aclScalar);
            op aclnnInplaceSubs aclnnInplaceSubsGetWorkspaceSize(self_ref: *mut aclTensor, other: *const aclScalar, alpha: *const aclScalar);
            op aclnnInplaceThreshold aclnnInplaceThresholdGetWorkspaceSize(self_ref: *mut aclTensor, threshold: *const aclScalar, value: *const aclScalar);
            op aclnnInplaceTriu aclnnInplaceTriuGetWorkspaceSize(self_ref: *mut aclTensor, diagonal: i64);
            op aclnnInplaceZero aclnnInplaceZeroGetWorkspaceSize(self_ref: *mut aclTensor);
            op aclnnLayerNorm aclnnLayerNormGetWorkspaceSize(input: *const aclTensor, normalized_shape: *const aclIntArray, weight_optional: *const aclTensor, bias_optional: *const aclTensor, eps: f64, out: *mut aclTensor, mean_out_optional: *mut aclTensor, rstd_out_optional: *mut aclTensor);
            op aclnnLeakyRelu aclnnLeakyReluGetWorkspaceSize(self_: *const aclTensor, negative_slope: *const aclScalar, out: *mut aclTensor);
            op aclnnLog aclnnLogGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnMatmul aclnnMatmulGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor, cube_math_type: i8);
            op aclnnMaxPool aclnnMaxPoolGetWorkspaceSize(self_: *const aclTensor, kernel_shape: *const aclIntArray, strides: *const aclIntArray, auto_pad: i64, pads: *const aclIntArray, dilations: *const aclIntArray, ceil_mode: i64, out: *mut aclTensor);
            op aclnnMaximum aclnnMaximumGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
            op aclnnMean aclnnMeanGetWorkspaceSize(self_: *const aclTensor, dim: *const aclIntArray, keep_dim: bool, dtype: aclDataType, out: *mut aclTensor);
            op aclnnMm aclnnMmGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor, cube_math_type: i8);
            op aclnnMul aclnnMulGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
            op aclnnMuls aclnnMulsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor);
            op aclnnMv aclnnMvGetWorkspaceSize(self_: *const aclTensor, vec: *const aclTensor, out: *mut aclTensor, cube_math_type: i8);
            op aclnnNeg aclnnNegGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnNorm aclnnNormGetWorkspaceSize(self_: *const aclTensor, p_scalar: *const aclScalar, dim: *const aclIntArray, keepdim: bool, out: *mut aclTensor);
            op aclnnPermute aclnnPermuteGetWorkspaceSize(self_: *const aclTensor, dims: *const aclIntArray, out: *mut aclTensor);
            op aclnnPowScalarTensor aclnnPowScalarTensorGetWorkspaceSize(self_: *const aclScalar, exponent: *const aclTensor, out: *mut aclTensor);
            op aclnnPowTensorScalar aclnnPowTensorScalarGetWorkspaceSize(self_: *const aclTensor, exponent: *const aclScalar, out: *mut aclTensor);
            op aclnnReciprocal aclnnReciprocalGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnReduceSum aclnnReduceSumGetWorkspaceSize(self_: *const aclTensor, dims: *const aclIntArray, keep_dims: bool, dtype: aclDataType, out: *mut aclTensor);
            op aclnnReflectionPad1d aclnnReflectionPad1dGetWorkspaceSize(self_: *const aclTensor, padding: *const aclIntArray, out: *mut aclTensor);
            op aclnnRelu aclnnReluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnRepeat aclnnRepeatGetWorkspaceSize(self_: *const aclTensor, repeats: *const aclIntArray, out: *mut aclTensor);
            op aclnnRepeatInterleaveIntWithDim aclnnRepeatInterleaveIntWithDimGetWorkspaceSize(self_: *const aclTensor, repeats: i64, dim: i64, output_size: i64, out: *mut aclTensor);
            op aclnnRmsNorm aclnnRmsNormGetWorkspaceSize(x: *const aclTensor, gamma: *const aclTensor, epsilon: f64, y_out: *mut aclTensor, rstd_out: *mut aclTensor);
            op aclnnRotaryPositionEmbedding aclnnRotaryPositionEmbeddingGetWorkspaceSize(x: *const aclTensor, cos: *const aclTensor, sin: *const aclTensor, mode: i64, out: *mut aclTensor);
            op aclnnRound aclnnRoundGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnRsqrt aclnnRsqrtGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnSWhere aclnnSWhereGetWorkspaceSize(condition: *const aclTensor, self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor);
            op aclnnSigmoid aclnnSigmoidGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnSign aclnnSignGetWorkspaceSize(self_: *const aclTensor, result: *mut aclTensor);
            op aclnnSilu aclnnSiluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnSin aclnnSinGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnSlice aclnnSliceGetWorkspaceSize(self_: *const aclTensor, dim: i64, start: i64, end: i64, step: i64, out: *mut aclTensor);
            op aclnnSoftmax aclnnSoftmaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, out: *mut aclTensor);
            op aclnnSoftmaxCrossEntropyWithLogits aclnnSoftmaxCrossEntropyWithLogitsGetWorkspaceSize(features: *const aclTensor, labels: *const aclTensor, loss: *mut aclTensor, backprop: *mut aclTensor);
            op aclnnSoftplus aclnnSoftplusGetWorkspaceSize(self_: *const aclTensor, beta: *const aclScalar, threshold: *const aclScalar, out: *mut aclTensor);
            op aclnnSqrt aclnnSqrtGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnSub aclnnSubGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar, out: *mut aclTensor);
            op aclnnSubs aclnnSubsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor);
            op aclnnSwiGlu aclnnSwiGluGetWorkspaceSize(x: *const aclTensor, dim: i64, out: *mut aclTensor);
            op aclnnTanh aclnnTanhGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnTopk aclnnTopkGetWorkspaceSize(self_: *const aclTensor, k: i64, dim: i64, largest: bool, sorted: bool, values_out: *mut aclTensor, indices_out: *mut aclTensor);
            op aclnnTransMatmulWeight aclnnTransMatmulWeightGetWorkspaceSize(mm_weight_ref: *mut aclTensor);
            op aclnnTriangularSolve aclnnTriangularSolveGetWorkspaceSize(self_: *const aclTensor, a: *const aclTensor, upper: bool, transpose: bool, unitriangular: bool, x_out: *mut aclTensor, m_out: *mut aclTensor);
            op aclnnTril aclnnTrilGetWorkspaceSize(self_: *const aclTensor, diagonal: i64, out: *mut aclTensor);
            op aclnnTriu aclnnTriuGetWorkspaceSize(self_: *const aclTensor, diagonal: i64, out: *mut aclTensor);
            op aclnnTrunc aclnnTruncGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor);
            op aclnnUpsampleBilinear2d aclnnUpsampleBilinear2dGetWorkspaceSize(self_: *const aclTensor, output_size: *const aclIntArray, align_corners: bool, scales_h: f64, scales_w: f64, out: *mut aclTensor);
            op aclnnUpsampleNearest2d aclnnUpsampleNearest2dGetWorkspaceSize(self_: *const aclTensor, output_size: *const aclIntArray, out: *mut aclTensor);
            op aclnnWeightQuantBatchMatmulV2 aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(x: *const aclTensor, weight: *const aclTensor, antiquant_scale: *const aclTensor, antiquant_offset_optional: *const aclTensor, quant_scale_optional: *const aclTensor, quant_offset_optional: *const aclTensor, bias_optional: *const aclTensor, antiquant_group_size: i32, y: *mut aclTensor);
        }
        }
    };
}
