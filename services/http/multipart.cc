#include "services/http/multipart.h"

#include <algorithm>
#include <utility>

#include "services/http/message.h"

namespace skein::services::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kBoundaryBytesMax = 70;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// Takes one "; name=value" off the front of `text`. A value may be a quoted string, in which a
// backslash escapes a quote or a backslash only: browsers send Windows paths. False: malformed.
bool TakeParameter(std::string_view* text, std::string* name, std::string* value) {
  *text = Trimmed(*text);
  if (text->empty() || text->front() != ';') return false;
  *text = Trimmed(text->substr(1));
  const size_t equals = text->find('=');
  if (equals == std::string_view::npos) return false;
  *name = Lower(Trimmed(text->substr(0, equals)));
  *text = Trimmed(text->substr(equals + 1));
  value->clear();
  if (text->empty() || text->front() != '"') {
    const std::string_view token = Trimmed(text->substr(0, text->find(';')));
    *value = std::string(token);
    text->remove_prefix(std::min(text->size(), text->find(';')));
    return !token.empty() && token.find('"') == std::string_view::npos;
  }
  for (size_t i = 1; i < text->size(); ++i) {
    char c = (*text)[i];
    if (c == '"') {
      text->remove_prefix(i + 1);
      return true;
    }
    const char next = i + 1 < text->size() ? (*text)[i + 1] : '\0';
    if (c == '\\' && (next == '"' || next == '\\')) {
      c = next;
      ++i;
    }
    value->push_back(c);
  }
  return false;  // the quote is not closed
}

bool ReadDisposition(std::string_view value, FormPart* part) {
  const std::string_view type = value.substr(0, value.find(';'));
  if (Lower(Trimmed(type)) != "form-data") return false;
  value.remove_prefix(type.size());
  bool named = false;
  while (!Trimmed(value).empty()) {
    std::string name, text;
    if (!TakeParameter(&value, &name, &text)) return false;
    if (name == "name" && std::exchange(named, true)) return false;
    if (name == "name") {
      part->name = std::move(text);
    } else if (name == "filename") {
      part->filename = std::move(text);
    }
  }
  return named;
}

bool IsBoundaryChar(char c) {
  constexpr std::string_view kOthers = "'()+_,-./:=? ";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kOthers.find(c) != std::string_view::npos;
}

}  // namespace

std::string BoundaryOf(std::string_view content_type) {
  if (!IsMediaType(content_type, "multipart/form-data")) return {};
  content_type.remove_prefix(std::min(content_type.size(), content_type.find(';')));
  std::string boundary;
  while (!Trimmed(content_type).empty()) {
    std::string name, value;
    if (!TakeParameter(&content_type, &name, &value)) return {};
    if (name != "boundary") continue;
    if (!boundary.empty()) return {};
    boundary = std::move(value);
  }
  const bool sized = !boundary.empty() && boundary.size() <= kBoundaryBytesMax;
  const bool plain = std::all_of(boundary.begin(), boundary.end(), IsBoundaryChar);
  return sized && plain && boundary.back() != ' ' ? boundary : std::string();
}

// The body is read as if a line had ended before it, so that the first delimiter is one as all.
MultipartReader::MultipartReader(std::string_view boundary, Hooks hooks)
    : delimiter_(std::string("\r\n--").append(boundary)), hooks_(std::move(hooks)), in_(kLineEnd) {}

bool MultipartReader::Fail(std::string error) {
  state_ = State::kFailed;
  error_ = std::move(error);
  return false;
}

bool MultipartReader::Feed(std::string_view bytes) {
  if (state_ == State::kDone) return true;
  if (state_ == State::kFailed) return false;
  in_.append(bytes);
  bool more = true;
  while (more) {
    switch (state_) {
      case State::kDelimiter:
        more = ReadDelimiter();
        break;
      case State::kHeader:
        more = ReadHeader();
        break;
      case State::kContent:
        more = ReadContent();
        break;
      case State::kDone:
      case State::kFailed:
        more = false;
    }
  }
  in_.erase(0, at_);
  at_ = 0;
  return state_ != State::kFailed;
}

bool MultipartReader::ReadDelimiter() {
  const std::string_view rest = std::string_view(in_).substr(at_);
  const size_t known = std::min(rest.size(), delimiter_.size());
  if (rest.substr(0, known) != std::string_view(delimiter_).substr(0, known)) {
    return Fail("The body does not begin with its boundary.");
  }
  if (rest.size() < delimiter_.size() + 2) return false;
  const std::string_view next = rest.substr(delimiter_.size(), 2);
  if (next == "--") {
    state_ = State::kDone;
    return false;
  }
  if (next != kLineEnd) return Fail("A boundary is not followed by the end of its line.");
  at_ += delimiter_.size();  // the header's lines are read from the line end before them
  state_ = State::kHeader;
  return true;
}

bool MultipartReader::ReadHeader() {
  constexpr std::string_view kHeaderEnd = "\r\n\r\n";
  std::string_view rest = std::string_view(in_).substr(at_);
  const size_t size = rest.find(kHeaderEnd);
  if (std::min(size, rest.size()) > kPartHeaderBytesMax) {
    return Fail("The header of a part is longer than " + std::to_string(kPartHeaderBytesMax) +
                " bytes.");
  }
  if (size == std::string_view::npos) return false;
  FormPart part;
  bool disposed = false;
  std::string_view lines = rest.substr(0, size);
  while (!lines.empty()) {
    lines.remove_prefix(kLineEnd.size());
    const std::string_view line = lines.substr(0, lines.find(kLineEnd));
    lines.remove_prefix(line.size());
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Fail("A header line of a part has no colon.");
    const std::string name = Lower(line.substr(0, colon));
    const std::string_view value = Trimmed(line.substr(colon + 1));
    if (name == "content-type") part.content_type = std::string(value);
    if (name != "content-disposition") continue;
    if (std::exchange(disposed, true) || !ReadDisposition(value, &part)) {
      return Fail("A part's Content-Disposition is not 'form-data; name=\"...\"'.");
    }
  }
  if (!disposed) return Fail("A part has no Content-Disposition.");
  at_ += size + kHeaderEnd.size();
  state_ = State::kContent;
  hooks_.begin(std::move(part));
  return true;
}

bool MultipartReader::ReadContent() {
  const std::string_view rest = std::string_view(in_).substr(at_);
  const size_t end = rest.find(delimiter_);
  const bool ends = end != std::string_view::npos;
  // Without the delimiter, its beginning may have come.
  const size_t size = ends ? end : rest.size() - std::min(rest.size(), delimiter_.size() - 1);
  if (size > 0) hooks_.content(rest.substr(0, size));
  at_ += size;
  if (!ends) return false;
  hooks_.end();
  state_ = State::kDelimiter;
  return true;
}

}  // namespace skein::services::http
