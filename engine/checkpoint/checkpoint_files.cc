#include "engine/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // as ParseSafetensors

// The text of JSON that parses; otherwise `missing` gets why not.
Json ReadJson(const fs::path& path, std::vector<std::string>* missing) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    missing->push_back(absl::StrCat(path.filename().string(), " is missing"));
    return {};
  }
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    missing->push_back(absl::StrCat(path.filename().string(), " is not complete"));
  }
  return json;
}

// The bytes that a safetensors file has when it is complete; 0: its header is not.
uint64_t WholeBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<unsigned char, 8> length{};
  if (!file.read(reinterpret_cast<char*>(length.data()), length.size())) return 0;
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | length[i];
  if (header_bytes > kHeaderBytesMax) return 0;
  std::string header(header_bytes, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(header.size()))) return 0;
  const Json json = Json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  uint64_t end = 0;
  for (const auto& [name, tensor] : json.items()) {
    const auto offsets = tensor.is_object() ? tensor.find("data_offsets") : tensor.end();
    if (offsets == tensor.end() || !offsets->is_array() || offsets->size() != 2) continue;
    if ((*offsets)[1].is_number_unsigned()) end = std::max(end, (*offsets)[1].get<uint64_t>());
  }
  return 8 + header_bytes + end;
}

void CheckWeightsFile(const fs::path& path, std::vector<std::string>* missing) {
  std::error_code error;
  const std::string name = path.filename().string();
  const uint64_t bytes = fs::file_size(path, error);
  if (error) return missing->push_back(absl::StrCat(name, " is missing"));
  const uint64_t whole = WholeBytes(path);
  if (whole == 0) return missing->push_back(absl::StrCat(name, " is not complete"));
  if (bytes < whole) {
    missing->push_back(
        absl::StrCat(name, " is not complete: it has ", bytes, " of ", whole, " bytes"));
  }
}

void CheckWeights(const fs::path& folder, std::vector<std::string>* missing) {
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code error;
  if (fs::exists(single, error)) return CheckWeightsFile(single, missing);
  if (!fs::exists(index, error)) {
    return missing->push_back("model.safetensors or model.safetensors.index.json is missing");
  }
  const Json json = ReadJson(index, missing);
  std::set<std::string> shards;
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map != json.end() && map->is_object()) {
    for (const auto& [tensor, file] : map->items()) {
      // The loader refuses what is not a plain file name.
      if (file.is_string() && file.get<std::string>().find('/') == std::string::npos) {
        shards.insert(file.get<std::string>());
      }
    }
  }
  for (const std::string& shard : shards) CheckWeightsFile(folder / shard, missing);
}

}  // namespace

absl::Status CheckCheckpointFiles(const std::string& folder, CheckpointParts parts) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat(folder, ": no such folder"));
  }
  std::vector<std::string> missing;
  ReadJson(fs::path(folder) / "config.json", &missing);
  if (parts.tokenizer) ReadJson(fs::path(folder) / "tokenizer.json", &missing);
  if (parts.weights) CheckWeights(folder, &missing);
  if (missing.empty()) return absl::OkStatus();
  std::string text = absl::StrCat(folder, ": ", missing.front());
  if (missing.size() > 1) absl::StrAppend(&text, " (and ", missing.size() - 1, " more)");
  return absl::NotFoundError(text);
}

}  // namespace skein::engine
