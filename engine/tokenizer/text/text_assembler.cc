#include "engine/tokenizer/text/text_assembler.h"

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {

TextAssembler::TextAssembler(const TextRules& rules, bool at_text_start)
    : rules_(rules), strip_start_left_(at_text_start ? rules.strip_start_max : 0) {}

void TextAssembler::Append(std::string_view bytes, std::string* out) {
  std::string joined;
  if (!incomplete_.empty()) {
    joined = std::move(incomplete_) + std::string(bytes);
    incomplete_.clear();
    bytes = joined;
  }
  size_t good = 0;  // bytes[0, good) is well formed and not emitted
  while (good < bytes.size()) {
    const Utf8Sequence sequence = ReadUtf8Sequence(bytes.substr(good));
    if (sequence.form == Utf8Form::kWellFormed) {
      good += sequence.size;
      continue;
    }
    EmitText(bytes.substr(0, good), out);
    bytes.remove_prefix(good);
    good = 0;
    if (sequence.form == Utf8Form::kTruncated) {
      incomplete_ = bytes;
      return;
    }
    EmitBad(sequence.size, out);
    bytes.remove_prefix(sequence.size);
  }
  EmitText(bytes, out);
}

void TextAssembler::Finish(std::string* out) {
  if (!incomplete_.empty()) EmitBad(incomplete_.size(), out);
  incomplete_.clear();
  tail_.clear();
  strip_start_left_ = rules_.strip_start_max;
}

void TextAssembler::EmitBad(size_t size, std::string* out) {
  for (size_t i = 0; i < (rules_.replace_each_byte ? size : 1); ++i)
    EmitText(kReplacementCharacter, out);
}

void TextAssembler::EmitText(std::string_view text, std::string* out) {
  if (text.empty()) return;
  while (strip_start_left_ > 0 && text.starts_with(rules_.strip)) {
    text.remove_prefix(rules_.strip.size());
    --strip_start_left_;
  }
  if (text.empty()) return;
  strip_start_left_ = 0;
  if (rules_.strip_stop_max == 0) {
    *out += text;
    return;
  }
  const size_t emitted_from = out->size();
  *out += tail_;
  *out += text;
  HoldTail(emitted_from, out);
}

void TextAssembler::HoldTail(size_t emitted_from, std::string* out) {
  tail_.clear();
  for (size_t held = 0; held < rules_.strip_stop_max; ++held) {
    if (!std::string_view(*out).substr(emitted_from).ends_with(rules_.strip)) break;
    out->resize(out->size() - rules_.strip.size());
    tail_ += rules_.strip;
  }
}

}  // namespace skein::engine
