#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // as the format's own reader
constexpr size_t kRankMax = 16;

struct DTypeBytes {
  std::string_view name;
  uint64_t bytes;
};
constexpr DTypeBytes kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8},
};

absl::Status Bad(std::string_view origin, std::string_view where, std::string_view why) {
  std::string text(origin);
  text.append(": ").append(where).append(": ").append(why);
  return absl::InvalidArgumentError(text);
}

absl::Status BadField(std::string_view origin, const std::string& tensor, const char* field,
                      std::string_view why) {
  return Bad(origin, "tensor \"" + tensor + "\": " + field, why);
}

absl::StatusOr<std::string_view> HeaderText(std::span<const uint8_t> file,
                                            std::string_view origin) {
  if (file.size() < kLengthBytes) return Bad(origin, "header length", "file is truncated");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kHeaderBytesMax) {
    return Bad(origin, "header length", std::to_string(length) + " is too large");
  }
  if (length > file.size() - kLengthBytes) {
    return Bad(origin, "header length",
               std::to_string(length) + " is beyond the file's end: truncated");
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
}

// Bytes that dtype and shape claim.
absl::StatusOr<uint64_t> ClaimedBytes(const json& entry, const std::string& name,
                                      std::string_view origin, FileTensor* tensor) {
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    return BadField(origin, name, "dtype", "missing or not a string");
  }
  tensor->dtype = dtype->get<std::string>();
  const auto* known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const DTypeBytes& d) { return d.name == tensor->dtype; });
  if (known == std::end(kDTypes)) {
    return BadField(origin, name, "dtype", dtype->dump(-1, ' ', true) + " is unknown");
  }
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kRankMax) {
    return BadField(origin, name, "shape", "missing or not a short list");
  }
  uint64_t bytes = known->bytes;
  for (const json& extent : *shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{1} << 62 ||
        __builtin_mul_overflow(bytes, extent.get<uint64_t>(), &bytes)) {
      return BadField(origin, name, "shape",
                      shape->dump(-1, ' ', true) + " is not a possible shape");
    }
    tensor->shape.push_back(static_cast<int64_t>(extent.get<uint64_t>()));
  }
  return bytes;
}

absl::StatusOr<FileTensor> ParseTensor(const std::string& name, const json& entry,
                                       std::span<const uint8_t> data, std::string_view origin) {
  FileTensor tensor;
  tensor.name = name;
  if (!entry.is_object()) return BadField(origin, name, "entry", "not an object");
  const absl::StatusOr<uint64_t> claimed = ClaimedBytes(entry, name, origin, &tensor);
  if (!claimed.ok()) return claimed.status();
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return BadField(origin, name, "data_offsets", "missing or not two positions");
  }
  const uint64_t begin = (*offsets)[0].get<uint64_t>();
  const uint64_t end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return BadField(
        origin, name, "data_offsets",
        offsets->dump() + " is not within the " + std::to_string(data.size()) + " bytes of data");
  }
  if (end - begin != *claimed) {
    return BadField(origin, name, "data_offsets",
                    offsets->dump() + " is not the " + std::to_string(*claimed) +
                        " bytes that dtype and shape need");
  }
  tensor.data = data.data() + begin;
  tensor.bytes = *claimed;
  return tensor;
}

// Sorted tensors must cover the data area end to end.
absl::Status CheckCoverage(const std::vector<FileTensor>& tensors, std::span<const uint8_t> data,
                           std::string_view origin) {
  const uint8_t* expected = data.data();
  for (const FileTensor& tensor : tensors) {
    if (tensor.data != expected) {
      return BadField(
          origin, tensor.name, "data_offsets",
          tensor.data < expected ? "overlaps the tensor before it" : "leaves a hole before it");
    }
    expected += tensor.bytes;
  }
  if (expected != data.data() + data.size()) {
    return Bad(origin, "data", "bytes after the last tensor");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<FileTensor>> ParseSafetensors(std::span<const uint8_t> file,
                                                         std::string_view origin) {
  const absl::StatusOr<std::string_view> text = HeaderText(file, origin);
  if (!text.ok()) return text.status();
  const std::span<const uint8_t> data = file.subspan(kLengthBytes + text->size());
  const absl::StatusOr<json> header = ParseStrictJson(*text, std::string(origin) + " header");
  if (!header.ok()) return header.status();
  if (!header->is_object()) return Bad(origin, "header", "not a JSON object");

  std::vector<FileTensor> tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<FileTensor> tensor = ParseTensor(name, entry, data, origin);
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(*std::move(tensor));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::pair(a.data, a.bytes) < std::pair(b.data, b.bytes);
  });
  const absl::Status covered = CheckCoverage(tensors, data, origin);
  if (!covered.ok()) return covered;
  return tensors;
}

}  // namespace skein::engine
