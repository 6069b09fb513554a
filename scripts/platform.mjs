// The eight platforms: package suffix, Rust target, and what npm may install it on.

export const PLATFORMS = [
  { name: 'linux-x64-gnu', target: 'x86_64-unknown-linux-gnu', os: 'linux', cpu: 'x64', libc: 'glibc' },
  { name: 'linux-arm64-gnu', target: 'aarch64-unknown-linux-gnu', os: 'linux', cpu: 'arm64', libc: 'glibc' },
  { name: 'linux-x64-musl', target: 'x86_64-unknown-linux-musl', os: 'linux', cpu: 'x64', libc: 'musl' },
  { name: 'linux-arm64-musl', target: 'aarch64-unknown-linux-musl', os: 'linux', cpu: 'arm64', libc: 'musl' },
  { name: 'darwin-arm64', target: 'aarch64-apple-darwin', os: 'darwin', cpu: 'arm64' },
  { name: 'darwin-x64', target: 'x86_64-apple-darwin', os: 'darwin', cpu: 'x64' },
  { name: 'win32-x64-msvc', target: 'x86_64-pc-windows-msvc', os: 'win32', cpu: 'x64' },
  { name: 'win32-arm64-msvc', target: 'aarch64-pc-windows-msvc', os: 'win32', cpu: 'arm64' },
]

/** The file cargo makes of the addon's crate. */
export function libraryName(os) {
  if (os === 'win32') return 'cann_node.dll'
  return os === 'darwin' ? 'libcann_node.dylib' : 'libcann_node.so'
}
