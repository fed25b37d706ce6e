// Turns a sequence of token bytes into text: joins characters split over tokens, replaces
// ill-formed bytes with U+FFFD and strips the text's ends as the tokenizer's decoder asks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skein::engine {

// The changes that a decoder makes to the joined text.
struct TextRules {
  // U+FFFD for every ill-formed byte (ByteFallback) instead of every maximal ill-formed subpart
  // (ByteLevel).
  bool replace_each_byte = false;
  std::string strip;           // one character
  size_t strip_start_max = 0;  // occurrences removed at the start of the text
  size_t strip_stop_max = 0;   // and at its end
};

class TextAssembler {
 public:
  // `rules` must outlive the assembler.
  TextAssembler(const TextRules& rules, bool at_text_start);

  // Appends to *out the text that is certain now.
  void Append(std::string_view bytes, std::string* out);

  // Appends what was held back, ill-formed bytes replaced.
  void Finish(std::string* out);

 private:
  void EmitBad(size_t size, std::string* out);
  void EmitText(std::string_view text, std::string* out);
  void HoldTail(size_t emitted_from, std::string* out);

  const TextRules& rules_;
  size_t strip_start_left_;
  std::string incomplete_;  // the first bytes of a character
  std::string tail_;        // occurrences of rules_.strip that may be the text's end
};

}  // namespace skein::engine
