// A model for tests whose tokens are bytes: token id = byte, <s> is 256, </s> is 257 (the end).
// Its chat template is "[role]content" a message, then "[assistant]".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/router/model/model.h"

namespace skein::services::testing {

inline constexpr int32_t kBos = 256;
inline constexpr int32_t kEos = 257;

std::unique_ptr<ServedModel> MakeByteModel(const std::string& name, int64_t max_positions);

// A model as SentencePiece makes them: "▁" stands for a space, one is put before a text, and taken
// off where a text begins. Its words are "a" and "b". <s> begins every prompt.
inline constexpr int32_t kSpaceBos = 1;
inline constexpr int32_t kSpaceA = 6;  // "▁a"
inline constexpr int32_t kSpaceB = 7;
std::unique_ptr<ServedModel> MakeSpaceModel(const std::string& name, int64_t max_positions);

std::vector<int32_t> BytesOf(std::string_view text);

}  // namespace skein::services::testing
