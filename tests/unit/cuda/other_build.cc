// A GPU library of sources that do not fit the program's.
extern "C" __attribute__((visibility("default"))) void* meshtrain_gpu_runtime(int) {
  return nullptr;
}
