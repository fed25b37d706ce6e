// What a client asks for with POST /v1/batches and POST /v1/files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "services/openai/api_error.h"
#include "services/openai/request.h"

namespace skein::services::openai {

inline constexpr int64_t kExpiresMinS = 3600, kExpiresMaxS = 2'592'000;  // OpenAI's: 1 h to 30 days

struct BatchRequest {
  std::string input_file;
  std::string endpoint;  // "/v1/chat/completions" or "/v1/completions"
  int64_t window_s = 0;
  std::map<std::string, std::string> metadata;
  int64_t output_expires_after_s = 0;  // 0: never
  BodyNotes notes;
};

MaybeError Parse(std::string_view body, const ParseLimits& limits, BatchRequest* request);

// "24h", "90m", "7d": from a minute to 30 days. OpenAI has "24h" alone. False: it is none.
bool ParseWindow(std::string_view text, int64_t* seconds);
// The same the other way round, in the largest of h, m and s that divides it.
std::string WindowText(int64_t seconds);

// The fields of an upload's form besides the file.
struct FileForm {
  std::string purpose;
  int64_t expires_after_s = 0;  // 0: the client says nothing of it
};

// `fields`: as they came; the last of equal names counts.
MaybeError ParseFileForm(const std::map<std::string, std::string>& fields, FileForm* form);

}  // namespace skein::services::openai
