#include "engine/cuda/emulator/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace skein::engine::simt {
namespace {

constexpr size_t kDynamicAlignment = 1024;
constexpr unsigned char kPoison = 0xff;
constexpr unsigned char kMarginByte = 0x5a;
constexpr size_t kMarginBytes = 64;

}  // namespace

SharedMemory::Array SharedMemory::Make(const void* key, size_t bytes, size_t alignment) {
  Array array{key, bytes, nullptr, 0};
  auto storage = std::make_unique<unsigned char[]>(alignment + bytes + kMarginBytes);
  array.offset = alignment - reinterpret_cast<uintptr_t>(storage.get()) % alignment;
  std::memset(storage.get() + array.offset, kPoison, bytes);
  std::memset(storage.get() + array.offset + bytes, kMarginByte, kMarginBytes);
  array.storage = std::move(storage);
  return array;
}

void SharedMemory::Reset(size_t dynamic_bytes, bool asks) {
  bytes_max_ = asks ? kSharedBytesMax : kStaticSharedBytesMax;
  arrays_.clear();
  arrays_.push_back(Make(nullptr, dynamic_bytes, kDynamicAlignment));
}

void SharedMemory::Poison() {
  for (Array& array : arrays_) std::memset(array.data(), kPoison, array.bytes);
}

void* SharedMemory::Find(const void* key, size_t bytes, size_t alignment) {
  size_t static_bytes = bytes;
  for (size_t i = 1; i < arrays_.size(); ++i) {
    if (arrays_[i].key == key) return arrays_[i].data();
    static_bytes += arrays_[i].bytes;
  }
  if (static_bytes > kStaticSharedBytesMax || static_bytes + arrays_.front().bytes > bytes_max_) {
    return nullptr;
  }
  arrays_.push_back(Make(key, bytes, std::max<size_t>(alignment, 16)));
  return arrays_.back().data();
}

bool SharedMemory::Contains(const void* p, size_t bytes) const {
  const auto* first = static_cast<const unsigned char*>(p);
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    return first >= array.data() && first + bytes <= array.data() + array.bytes;
  });
}

bool SharedMemory::MarginsIntact() const {
  return std::all_of(arrays_.begin(), arrays_.end(), [](const Array& array) {
    const unsigned char* margin = array.data() + array.bytes;
    return std::all_of(margin, margin + kMarginBytes,
                       [](unsigned char byte) { return byte == kMarginByte; });
  });
}

}  // namespace skein::engine::simt
