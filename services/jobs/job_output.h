// A line of a job's output or error file, as OpenAI's batch API has it. Ends with a newline. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skein::services {

struct OutputLine {
  std::string job;  // the job's id
  uint64_t line = 0;
  std::string custom_id;
  int64_t status_code = 0;  // 0: no response
  std::string request_id;
  std::string body;  // JSON: of the response; without one, an object with code and message
};

std::string OutputText(const OutputLine& line);

// The body of a line that was not answered before the job's window was over.
std::string ExpiredBody();

}  // namespace skein::services
