// Reads a multipart/form-data body (RFC 7578) piece by piece, with bounded memory.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace skein::services::http {

// The boundary of a Content-Type "multipart/form-data; boundary=..."; "": it is another type, or
// the boundary is none (RFC 2046 5.1.1: 1 to 70 characters).
std::string BoundaryOf(std::string_view content_type);

struct FormPart {
  std::string name;
  std::optional<std::string> filename;  // set: the part is a file
  std::string content_type;             // "" if the client says none
};

// Strict: no preamble, CRLF line ends, Content-Disposition with a name in every part, and the
// closing delimiter. What follows that is ignored.
class MultipartReader {
 public:
  static constexpr size_t kPartHeaderBytesMax = 8 << 10;

  struct Hooks {
    std::function<void(FormPart)> begin;
    std::function<void(std::string_view)> content;  // of the current part, in order; not empty
    std::function<void()> end;                      // of the current part
  };

  // `boundary`: as BoundaryOf gives it, not empty.
  MultipartReader(std::string_view boundary, Hooks hooks);

  // False: the body is malformed. Then, and after the closing delimiter, nothing more is read.
  bool Feed(std::string_view bytes);
  // Whether the closing delimiter was read. If not, and error() is empty, the body is cut short.
  bool complete() const { return state_ == State::kDone; }
  // What is malformed, as a sentence; "": nothing so far.
  const std::string& error() const { return error_; }

 private:
  enum class State { kDelimiter, kHeader, kContent, kDone, kFailed };

  // Reads on; false: more bytes are needed, or nothing more is read.
  bool ReadDelimiter();
  bool ReadHeader();
  bool ReadContent();
  bool Fail(std::string error);

  const std::string delimiter_;  // with the line end before it
  const Hooks hooks_;
  State state_ = State::kDelimiter;
  std::string in_;  // arrived and not read: what may be the start of a delimiter or is of a header
  size_t at_ = 0;   // where in in_ reading goes on
  std::string error_;
};

}  // namespace skein::services::http
