// Input: tokenizer.json, a zero byte, tokenizer_config.json, a zero byte, a text. Missing parts are
// empty. A file that loads must encode any text, and its stream of deltas must equal the whole
// decoded text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/stream_decoder.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer.h"
#include "scheduler/vocabulary/check.h"

namespace {

using skein::engine::StreamDecoder;
using skein::engine::Tokenizer;

std::string_view TakePart(std::string_view* rest) {
  const size_t end = rest->find('\0');
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return part;
}

void CheckText(const Tokenizer& tokenizer, std::string_view text, bool special) {
  const std::vector<int32_t> ids =
      tokenizer.Encode(text, {.add_special_tokens = special, .parse_special = special});
  const std::string whole = tokenizer.Decode(ids, special);
  SKEIN_CHECK(skein::engine::IsUtf8(whole));
  StreamDecoder stream(tokenizer, {.skip_special = special});
  std::string joined;
  for (const int32_t id : ids) {
    const std::string delta = stream.Push(id);
    SKEIN_CHECK(skein::engine::IsUtf8(delta));
    joined += delta;
  }
  SKEIN_CHECK(joined + stream.Flush() == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view json = TakePart(&rest);
  const std::string_view config = TakePart(&rest);
  const auto tokenizer = Tokenizer::FromJson(json, config);
  if (!tokenizer.ok()) return 0;
  for (const bool special : {false, true}) {
    CheckText(**tokenizer, rest, special);
    CheckText(**tokenizer, "Hello  wörld 123\n ▁\xFF 你好🙂\t'll", special);
  }
  return 0;
}
