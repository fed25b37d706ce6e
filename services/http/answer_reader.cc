#include "services/http/answer_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace skein::services::http {
namespace {

constexpr char kNotHttp[] = "the answer is not HTTP or is incomplete";
constexpr char kIncomplete[] = "the answer is incomplete";
constexpr char kBadChunk[] = "the answer's chunks are malformed";
constexpr std::string_view kVersion = "HTTP/1.";

// Digits of `base` and nothing else.
bool ParseSize(std::string_view text, int base, size_t* size) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *size, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The last coding of Transfer-Encoding is "chunked", in any case.
bool IsChunked(std::string_view codings) {
  constexpr std::string_view kChunked = "chunked";
  const std::string_view last = Trimmed(codings.substr(codings.rfind(',') + 1));
  return last.size() == kChunked.size() &&
         std::equal(last.begin(), last.end(), kChunked.begin(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

// "HTTP/1.1 200 OK".
bool ParseStatus(std::string_view line, int* status) {
  if (line.substr(0, kVersion.size()) != kVersion || line.size() < 12 || line[8] != ' ') {
    return false;
  }
  const auto [end, error] = std::from_chars(&line[9], &line[9] + 3, *status);
  return error == std::errc() && end == &line[9] + 3 && *status >= 100 &&
         (line.size() == 12 || line[12] == ' ');
}

}  // namespace

AnswerReader::State AnswerReader::Take(std::string_view bytes) {
  held_.append(bytes);
  if (held_.size() > kBytesMax) return Break("the answer exceeds 16 MiB");
  while (true) {
    const Part part = part_;
    const size_t at = at_;
    const State state = Read();
    if (state != State::kMore || (part_ == part && at_ == at)) return state;
  }
}

AnswerReader::State AnswerReader::TakeEnd() {
  if (part_ == Part::kHead) return Break(kNotHttp);
  if (part_ != Part::kUntilClose) return Break(kIncomplete);
  response_.body = held_.substr(at_);
  part_ = Part::kOver;
  return State::kWhole;
}

Response AnswerReader::TakeResponse() { return std::move(response_); }

AnswerReader::State AnswerReader::Read() {
  switch (part_) {
    case Part::kHead:
      return ReadHead();
    case Part::kLength:
      return ReadLength();
    case Part::kChunkSize:
      return ReadChunkSize();
    case Part::kChunk:
      return ReadChunk();
    case Part::kTrailer:
      return ReadTrailer();
    case Part::kUntilClose:
      return State::kMore;
    case Part::kOver:
      break;
  }
  return State::kWhole;
}

// Answers of status 1xx come before the one that counts.
AnswerReader::State AnswerReader::ReadHead() {
  const std::string_view rest = std::string_view(held_).substr(at_);
  const std::string_view begin = rest.substr(0, kVersion.size());
  if (begin != kVersion.substr(0, begin.size())) return Break(kNotHttp);
  const size_t end = rest.find("\r\n\r\n");
  if (end == std::string_view::npos) return AwaitLine();
  const size_t body = at_ + end + 4;
  response_ = {};
  std::string_view line;
  TakeLine(&line);
  if (!ParseStatus(line, &response_.status)) return Break(kNotHttp);
  while (at_ + 2 < body && TakeLine(&line)) {
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view value = line.substr(std::min(colon + 1, line.size()));
    response_.headers.push_back({std::string(line.substr(0, colon)), std::string(Trimmed(value))});
  }
  at_ = body;
  const bool before = response_.status >= 100 && response_.status < 200 && response_.status != 101;
  return before ? State::kMore : ChooseBody();
}

AnswerReader::State AnswerReader::ChooseBody() {
  const std::string_view codings = FindHeader(response_.headers, "Transfer-Encoding");
  const std::string_view length = FindHeader(response_.headers, "Content-Length");
  if (of_head_ || response_.status == 204 || response_.status == 304) {
    part_ = Part::kOver;
  } else if (!codings.empty()) {
    part_ = IsChunked(codings) ? Part::kChunkSize : Part::kUntilClose;
  } else if (length.empty()) {
    part_ = Part::kUntilClose;
  } else {
    if (!ParseSize(length, 10, &length_)) return Break("the answer's Content-Length is malformed");
    part_ = Part::kLength;
  }
  return part_ == Part::kOver ? State::kWhole : State::kMore;
}

AnswerReader::State AnswerReader::ReadLength() {
  if (held_.size() - at_ < length_) return State::kMore;
  response_.body = held_.substr(at_, length_);
  part_ = Part::kOver;
  return State::kWhole;
}

// "1a;extension".
AnswerReader::State AnswerReader::ReadChunkSize() {
  std::string_view line;
  if (!TakeLine(&line)) return AwaitLine();
  if (!ParseSize(Trimmed(line.substr(0, line.find(';'))), 16, &length_) || length_ > kBytesMax) {
    return Break(kBadChunk);
  }
  part_ = length_ == 0 ? Part::kTrailer : Part::kChunk;
  return State::kMore;
}

AnswerReader::State AnswerReader::ReadChunk() {
  if (held_.size() - at_ < length_ + 2) return State::kMore;
  if (held_.compare(at_ + length_, 2, "\r\n") != 0) return Break(kBadChunk);
  response_.body.append(held_, at_, length_);
  at_ += length_ + 2;
  part_ = Part::kChunkSize;
  return State::kMore;
}

// Headers behind the last chunk, up to an empty line. Nobody here reads them.
AnswerReader::State AnswerReader::ReadTrailer() {
  std::string_view line;
  while (TakeLine(&line)) {
    if (!line.empty()) continue;
    part_ = Part::kOver;
    return State::kWhole;
  }
  return AwaitLine();
}

// Each look at a line that is not complete begins at its beginning, so it must not grow for long.
AnswerReader::State AnswerReader::AwaitLine() {
  return held_.size() - at_ > kLineBytesMax ? Break("the answer's head exceeds 64 KiB")
                                            : State::kMore;
}

bool AnswerReader::TakeLine(std::string_view* line) {
  const size_t end = held_.find("\r\n", at_);
  if (end == std::string::npos) return false;
  *line = std::string_view(held_).substr(at_, end - at_);
  at_ = end + 2;
  return true;
}

AnswerReader::State AnswerReader::Break(const char* problem) {
  problem_ = problem;
  part_ = Part::kOver;
  return State::kBroken;
}

}  // namespace skein::services::http
