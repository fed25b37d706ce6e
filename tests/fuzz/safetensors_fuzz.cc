// Input: the bytes of a safetensors file. An accepted file's tensors lie within it, end to end.
#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/safetensors.h"
#include "scheduler/vocabulary/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = skein::engine::ParseSafetensors({data, size}, "fuzz");
  if (!tensors.ok()) return 0;
  const uint8_t* end = data + size;
  size_t bytes = 0;
  for (const skein::engine::FileTensor& tensor : *tensors) {
    SKEIN_CHECK(tensor.data >= data && tensor.data <= end);
    SKEIN_CHECK(tensor.bytes <= static_cast<size_t>(end - tensor.data));
    bytes += tensor.bytes;
  }
  SKEIN_CHECK(bytes <= size);
  return 0;
}
