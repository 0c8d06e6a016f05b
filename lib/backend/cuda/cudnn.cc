#include "backend/cuda/cudnn.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/libraries.h"

namespace meshtrain::cuda {
namespace {

template <class Note>
std::vector<Note> notes(const Core& core, cudnnBackendDescriptor_t object,
                        cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t most) {
  std::vector<Note> found(static_cast<size_t>(most));
  int64_t count = 0;
  core.check(cudnn().cudnnBackendGetAttribute(object, name, type, most, &count, found.data()),
             "cudnnBackendGetAttribute (notes of an engine)");
  found.resize(static_cast<size_t>(std::min(count, most)));
  return found;
}

}  // namespace

CudnnObject::CudnnObject(const Core& core, cudnnBackendDescriptorType_t type) : core_(&core) {
  core.check(cudnn().cudnnBackendCreateDescriptor(type, &object_), "cudnnBackendCreateDescriptor");
}

CudnnObject::~CudnnObject() {
  if (object_ != nullptr)
    cudnn().cudnnBackendDestroyDescriptor(object_);
}

CudnnObject::CudnnObject(CudnnObject&& other) noexcept
    : core_(other.core_), object_(std::exchange(other.object_, nullptr)) {}

CudnnObject& CudnnObject::operator=(CudnnObject&& other) noexcept {
  std::swap(core_, other.core_);
  std::swap(object_, other.object_);
  return *this;
}

void CudnnObject::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t count, const void* values) {
  core_->check(cudnn().cudnnBackendSetAttribute(object_, name, type, count, values),
               "cudnnBackendSetAttribute");
}
void CudnnObject::set(cudnnBackendAttributeName_t name, int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}
void CudnnObject::set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
  set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}
void CudnnObject::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
void CudnnObject::set(cudnnBackendAttributeName_t name, const CudnnObject& value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.object_);
}

void CudnnObject::finalize() {
  core_->check(try_finalize(), "cudnnBackendFinalize");
}
cudnnStatus_t CudnnObject::try_finalize() {
  return cudnn().cudnnBackendFinalize(object_);
}

int64_t CudnnObject::get_int64(cudnnBackendAttributeName_t name) const {
  int64_t value = 0, count = 0;
  core_->check(cudnn().cudnnBackendGetAttribute(object_, name, CUDNN_TYPE_INT64, 1, &count, &value),
               "cudnnBackendGetAttribute");
  return value;
}

std::vector<cudnnBackendNumericalNote_t> CudnnObject::numerical_notes() const {
  return notes<cudnnBackendNumericalNote_t>(*core_, object_, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                            CUDNN_TYPE_NUMERICAL_NOTE,
                                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
}
std::vector<cudnnBackendBehaviorNote_t> CudnnObject::behavior_notes() const {
  return notes<cudnnBackendBehaviorNote_t>(*core_, object_, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                           CUDNN_TYPE_BEHAVIOR_NOTE,
                                           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
}

void CudnnObject::read(cudnnBackendAttributeName_t name, CudnnObject& value) const {
  int64_t count = 0;
  core_->check(cudnn().cudnnBackendGetAttribute(object_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                &count, &value.object_),
               "cudnnBackendGetAttribute");
}

// cuDNN fills objects that the caller makes.
std::vector<CudnnObject> CudnnObject::read_all(cudnnBackendAttributeName_t name,
                                               cudnnBackendDescriptorType_t type,
                                               int64_t most) const {
  std::vector<CudnnObject> objects;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i)
    raw.push_back(objects.emplace_back(*core_, type).get());
  int64_t count = 0;
  core_->check(cudnn().cudnnBackendGetAttribute(object_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                                                &count, raw.data()),
               "cudnnBackendGetAttribute");
  objects.resize(static_cast<size_t>(std::min(count, most)));
  return objects;
}

}  // namespace meshtrain::cuda
