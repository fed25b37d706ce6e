// simt_peer.h on the CPU: the functions of simt_peer_cuda.h (which has their contracts). Where
// several ranks run (ranks.h), over PeerMemory; elsewhere ranks are OS threads, and memory is the
// process's own.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/cuda/emulator/grid.h"

namespace skein::engine::simt {

// `words` of 4 bytes.
void PeerLoadWords(const void* p, uint32_t* out, int words, const Site& site);
void PeerStoreWords(void* p, const uint32_t* in, int words, const Site& site);

template <typename V>
V PeerLoad(const void* p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(sizeof(V) % 4 == 0);
  if (reinterpret_cast<uintptr_t>(p) % alignof(V) != 0) {
    KernelFailure({"PeerLoad", file, line}, "the address is not aligned");
  }
  uint32_t words[sizeof(V) / 4];
  PeerLoadWords(p, words, sizeof(V) / 4, {"PeerLoad", file, line});
  V value;
  std::memcpy(&value, words, sizeof(V));
  return value;
}
template <typename V>
void PeerStore(void* p, V value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(sizeof(V) % 4 == 0);
  if (reinterpret_cast<uintptr_t>(p) % alignof(V) != 0) {
    KernelFailure({"PeerStore", file, line}, "the address is not aligned");
  }
  uint32_t words[sizeof(V) / 4];
  std::memcpy(words, &value, sizeof(V));
  PeerStoreWords(p, words, sizeof(V) / 4, {"PeerStore", file, line});
}

void PeerRelease(uint32_t* p, uint32_t value, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());
uint32_t PeerAcquire(const uint32_t* p, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE());
void PeerStoreRelaxed(uint32_t* p, uint32_t value, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE());
uint32_t PeerLoadRelaxed(const uint32_t* p, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());

int64_t NowNs();

}  // namespace skein::engine::simt
