// Input: the size of the pieces in which the body comes, then the body, whose boundary is "b". The
// same parts must be read from pieces as from the whole, and never more bytes than came.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "scheduler/vocabulary/check.h"
#include "services/http/multipart.h"

namespace {

struct Read {
  std::string parts;
  size_t content_bytes = 0;
  bool complete = false;
  bool failed = false;
  bool operator==(const Read&) const = default;
};

Read ReadForm(std::string_view body, size_t piece_bytes) {
  Read read;
  bool open = false;
  skein::services::http::MultipartReader reader(
      "b", {.begin =
                [&](const skein::services::http::FormPart& part) {
                  SKEIN_CHECK(!open);
                  open = true;
                  read.parts += "\n" + part.name + ":" + part.filename.value_or("") + ":" +
                                part.content_type + "=";
                },
            .content =
                [&](std::string_view bytes) {
                  SKEIN_CHECK(open && !bytes.empty());
                  read.parts.append(bytes);
                  read.content_bytes += bytes.size();
                },
            .end =
                [&] {
                  SKEIN_CHECK(open);
                  open = false;
                }});
  while (!body.empty()) {
    const std::string_view piece = body.substr(0, piece_bytes);
    body.remove_prefix(piece.size());
    if (!reader.Feed(piece)) break;
  }
  read.complete = reader.complete();
  read.failed = !reader.error().empty();
  SKEIN_CHECK(!read.complete || (!read.failed && !open));
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const Read whole = ReadForm(body, std::max<size_t>(body.size(), 1));
  SKEIN_CHECK(whole.content_bytes <= body.size());
  const Read pieces = ReadForm(body, std::max<size_t>(data[0], 1));
  SKEIN_CHECK(pieces.failed == whole.failed && pieces.complete == whole.complete);
  SKEIN_CHECK(whole.failed || pieces == whole);
  const std::string type = "multipart/form-data" + std::string(body);
  SKEIN_CHECK(skein::services::http::BoundaryOf(type).size() <= 70);
  return 0;
}
