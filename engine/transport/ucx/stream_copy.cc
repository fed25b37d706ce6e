#include "engine/transport/ucx/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace skein::engine {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kLinesAhead = 4;

}  // namespace

#ifdef __SSE2__

void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  // Only whole lines are written without being read.
  const size_t before = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t head = std::min(bytes, before);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    auto* const line = reinterpret_cast<__m128i*>(to + at);
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    for (size_t i = 0; i < kLineBytes / sizeof(__m128i); ++i) {
      _mm_stream_si128(line + i, _mm_loadu_si128(source + i));
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
}

void StreamFence() { _mm_sfence(); }

#else

void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void StreamFence() {}

#endif

void StreamAhead(const std::byte* from) {
  for (size_t i = 0; i < kLinesAhead; ++i) __builtin_prefetch(from + i * kLineBytes);
}

}  // namespace skein::engine
