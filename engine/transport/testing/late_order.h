// What late_writer_test tells the process late_writer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::engine {

inline constexpr size_t kLatePieces = 8;
inline constexpr size_t kLatePieceBytes = 4096;  // a page; as far apart at the target

struct LateOrder {
  uint64_t region = 0;   // of the target
  uint64_t offset = 0;   // there
  int32_t stop_at = -1;  // piece; -1: none
  uint8_t byte = 0;
};

}  // namespace skein::engine
