// A block's shared arrays: filled with 0xff when a block starts, with a margin behind each that
// must stay as it was. Internal to the emulator.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace skein::engine::simt {

// What Hopper has for a block, and what of it may be static; the latter is all that a block has
// whose launch does not ask for more.
inline constexpr size_t kSharedBytesMax = 227 << 10;
inline constexpr size_t kStaticSharedBytesMax = 48 << 10;

class SharedMemory {
 public:
  // For the blocks of a new grid, whose launch asks for more than the usual memory or does not.
  void Reset(size_t dynamic_bytes, bool asks);
  // Fills all arrays for a new block.
  void Poison();
  unsigned char* dynamic() { return arrays_.front().data(); }
  // The array of `key`; a new one is filled. Null when the block would have too much.
  void* Find(const void* key, size_t bytes, size_t alignment);
  // [p, p + bytes) is inside one array.
  bool Contains(const void* p, size_t bytes) const;
  // Nothing was written behind an array.
  bool MarginsIntact() const;

 private:
  struct Array {
    const void* key;
    size_t bytes;
    std::unique_ptr<unsigned char[]> storage;
    size_t offset;  // of the first byte, aligned
    unsigned char* data() const { return storage.get() + offset; }
  };
  static Array Make(const void* key, size_t bytes, size_t alignment);

  std::vector<Array> arrays_;  // the first is the dynamic one
  size_t bytes_max_ = kSharedBytesMax;
};

}  // namespace skein::engine::simt
