#include "engine/checkpoint/tensor_store.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = 100'000'000;

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::string Show(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

}  // namespace

absl::StatusOr<TensorStore> TensorStore::Open(const std::string& model_dir, MappedUse use) {
  TensorStore store(use);
  absl::Status status = store.AddFile(model_dir, kSingleName);
  if (absl::IsNotFound(status)) {
    const absl::StatusOr<std::string> index =
        ReadSmallFile(model_dir + "/" + kIndexName, kIndexBytesMax);
    if (absl::IsNotFound(index.status())) {
      return absl::NotFoundError(model_dir + ": neither " + kSingleName + " nor " + kIndexName);
    }
    status = index.ok() ? store.AddShards(model_dir, *index) : index.status();
  }
  if (!status.ok()) return status;
  store.AlignTensors();
  return store;
}

absl::Status TensorStore::AddFile(const std::string& model_dir, const std::string& file_name) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(model_dir + "/" + file_name, use_);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::vector<FileTensor>> tensors = ParseSafetensors(file->bytes(), file_name);
  if (!tensors.ok()) return tensors.status();
  for (FileTensor& tensor : *tensors) {
    const auto [it, added] = file_of_.emplace(tensor.name, file_name);
    if (!added) {
      return absl::InvalidArgumentError("tensor \"" + tensor.name + "\": in both " + it->second +
                                        " and " + file_name);
    }
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  files_.push_back(*std::move(file));
  return absl::OkStatus();
}

absl::Status TensorStore::AddShards(const std::string& model_dir, std::string_view index_text) {
  const absl::StatusOr<nlohmann::json> index = ParseStrictJson(index_text, kIndexName);
  if (!index.ok()) return index.status();
  const auto map = index->is_object() ? index->find("weight_map") : index->end();
  if (map == index->end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(std::string(kIndexName) +
                                      ": weight_map: missing, empty or not an object");
  }
  std::map<std::string, std::string> listed;
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      return absl::InvalidArgumentError(std::string(kIndexName) + ": weight_map: tensor \"" +
                                        tensor + "\": " + file.dump(-1, ' ', true) +
                                        " is not a file name in this folder");
    }
    listed[tensor] = file.get<std::string>();
    shards.insert(file.get<std::string>());
  }
  for (const std::string& shard : shards) {
    const absl::Status added = AddFile(model_dir, shard);
    if (absl::IsNotFound(added)) {
      return absl::NotFoundError(std::string(kIndexName) + ": missing shard " + shard);
    }
    if (!added.ok()) return added;
  }
  for (const auto& [tensor, file] : listed) {
    const auto it = file_of_.find(tensor);
    if (it == file_of_.end() || it->second != file) {
      return absl::InvalidArgumentError("tensor \"" + tensor + "\": not in shard " + file +
                                        ", where the index has it");
    }
  }
  for (const auto& [tensor, file] : file_of_) {
    if (!listed.contains(tensor)) {
      return absl::InvalidArgumentError("tensor \"" + tensor + "\": in shard " + file +
                                        " but not in the index");
    }
  }
  return absl::OkStatus();
}

// Old writers did not pad the header, so a tensor may begin at an odd address. Such a file is
// valid; its misaligned tensors are copied once.
void TensorStore::AlignTensors() {
  for (auto& [name, tensor] : tensors_) {
    if (reinterpret_cast<uintptr_t>(tensor.data) % 4 == 0 || tensor.bytes == 0) continue;
    if (tensor.dtype != "F32" && reinterpret_cast<uintptr_t>(tensor.data) % 2 == 0) continue;
    copies_.push_back(std::make_unique<uint64_t[]>((tensor.bytes + 7) / 8));
    std::memcpy(copies_.back().get(), tensor.data, tensor.bytes);
    tensor.data = reinterpret_cast<const uint8_t*>(copies_.back().get());
  }
}

absl::StatusOr<ConstMatrix> TensorStore::View(std::string_view name,
                                              const std::vector<int64_t>& shape) const {
  const auto it = tensors_.find(name);
  const std::string label = "tensor \"" + std::string(name) + "\"";
  if (it == tensors_.end()) {
    return absl::NotFoundError(label + ": missing; expected shape " + Show(shape));
  }
  const FileTensor& tensor = it->second;
  if (tensor.shape != shape) {
    return absl::InvalidArgumentError(label + ": shape " + Show(tensor.shape) + ", expected " +
                                      Show(shape));
  }
  DType dtype = DType::kF32;
  if (tensor.dtype == "BF16") {
    dtype = DType::kBF16;
  } else if (tensor.dtype == "F16") {
    dtype = DType::kF16;
  } else if (tensor.dtype != "F32") {
    return absl::InvalidArgumentError(label + ": dtype " + tensor.dtype +
                                      " is not supported (BF16, F16, F32 are)");
  }
  const int64_t cols = shape.back();
  return ConstMatrix{tensor.data, dtype, shape.size() == 1 ? 1 : shape.front(), cols, cols};
}

absl::StatusOr<ConstMatrix> TensorStore::Vector(std::string_view name, int64_t size) const {
  return View(name, {size});
}

absl::StatusOr<ConstMatrix> TensorStore::Matrix(std::string_view name, int64_t rows,
                                                int64_t cols) const {
  return View(name, {rows, cols});
}

}  // namespace skein::engine
