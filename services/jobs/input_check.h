// InputCheck: whether a job's input file is as OpenAI's batch API wants it, line by line, from
// pieces of the file. Errors have OpenAI's codes and the number of the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/jobs.pb.h"

namespace skein::services {

// A line that is right.
struct CheckedLine {
  uint64_t line = 0;   // of the file, from 1; lines of white space count, but are no requests
  uint64_t at = 0;     // its first byte in the file
  uint64_t bytes = 0;  // without the end of line
  std::string custom_id;
  uint64_t prefix = 0;  // a digest of how its prompt begins, and of its model
  int64_t tokens = 0;   // of prompt and output: an estimate from bytes and max_tokens
};

class InputCheck {
 public:
  static constexpr uint64_t kLinesMax = 50'000;  // as OpenAI's
  static constexpr size_t kErrorsMax = 50;       // further ones are not told, and the check ends
  // Of a line: an order for a router carries it in one message.
  static constexpr size_t kLineBytesMax = size_t{15} << 20;
  // Of a custom_id and a model's name: errors and the job's status hold them.
  static constexpr size_t kNameBytesMax = 512;

  explicit InputCheck(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  // The next bytes of the file.
  void Feed(std::string_view piece);
  // There are no more.
  void End();
  // Feed need not be called any more.
  bool Ended() const { return ended_; }

  // Those since the last call. After an error they are of no use.
  std::vector<CheckedLine> TakeLines();
  const std::vector<v1::JobError>& errors() const { return errors_; }
  uint64_t lines() const { return lines_; }  // requests
  const std::string& model() const { return model_; }

 private:
  void Line(std::string_view text);
  void Check(std::string_view text, CheckedLine* line);
  void TooLong();
  // `line`: 0: the current one.
  void Fail(std::string_view code, std::string message, std::string_view param = "",
            uint64_t line = 0);
  void FailTooLong(const char* param, const std::string& value);  // a name of the current line
  void FailWhole(std::string_view code, std::string message);

  const std::string endpoint_;
  std::string begun_;    // a line whose end has not come
  bool skips_ = false;   // the rest of a line that is too long
  uint64_t at_ = 0;      // of the line that has begun
  uint64_t so_far_ = 0;  // its bytes that have come
  uint64_t number_ = 0;
  uint64_t lines_ = 0;
  bool ended_ = false;
  std::string model_;
  std::unordered_set<std::string> ids_;
  std::vector<CheckedLine> checked_;
  std::vector<v1::JobError> errors_;
};

// The member `body` of a line that was right, as JSON. INTERNAL: the line is not right.
absl::StatusOr<std::string> BodyOfLine(std::string_view line);

}  // namespace skein::services
