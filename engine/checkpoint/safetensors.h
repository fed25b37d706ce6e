// The safetensors container: [8 bytes little-endian n][n bytes JSON header][tensor bytes].
//
// The header maps a tensor's name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets
// counted from the end of the header; "__metadata__" maps strings to strings. As in the format's
// own reader, the tensors cover the data area exactly: no hole, no overlap, no byte beyond.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

struct FileTensor {
  std::string name;
  std::string dtype;           // as the file spells it: "BF16", "F32", "I64", …
  std::vector<int64_t> shape;  // every extent ≥ 0; the product of extents fits
  const uint8_t* data = nullptr;
  size_t bytes = 0;  // = elements × bytes of dtype
};

// Tensors of a whole file, in the order of their bytes; `data` points into `file`. `origin` names
// the file in errors. INVALID_ARGUMENT names the tensor and the field that lies; never crashes, and
// allocates no more than a small multiple of the header's true length.
absl::StatusOr<std::vector<FileTensor>> ParseSafetensors(std::span<const uint8_t> file,
                                                         std::string_view origin);

}  // namespace skein::engine
