#include "engine/model/testing/widen_checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/checkpoint/tensor_store.h"
#include "engine/ops/element.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

void WidenCheckpoint(const std::string& from, const std::string& to,
                     const std::function<bool(const std::string& name)>& widens) {
  const absl::StatusOr<TensorStore> store = TensorStore::Open(from);
  SKEIN_CHECK_MSG(store.ok(), from.c_str());
  std::filesystem::create_directories(to);
  std::filesystem::copy_file(from + "/config.json", to + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  nlohmann::json header;
  std::string values;
  for (const auto& [name, tensor] : store->tensors()) {
    SKEIN_CHECK_MSG(tensor.dtype == "BF16", "only bf16 is widened");
    const size_t begin = values.size();
    const auto count = static_cast<int64_t>(tensor.bytes / BytesOf(DType::kBF16));
    const bool wide = widens == nullptr || widens(name);
    for (int64_t i = 0; wide && i < count; ++i) {
      const float value = LoadElement(tensor.data, DType::kBF16, i);
      values.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    if (!wide) values.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
    header[name] = {{"dtype", wide ? "F32" : "BF16"},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, values.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(to + "/model.safetensors", std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  file << values;
  SKEIN_CHECK_MSG(file.flush().good(), to.c_str());
}

}  // namespace skein::engine
