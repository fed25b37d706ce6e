// One choice's tokens on their way to text: detokenised, cut at stop strings, with their logprobs.
// What is ready collects in a Choice that the answer takes whenever it sends something.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tokenizer/stream_decoder.h"
#include "proto/common.pb.h"
#include "services/openai/request.h"
#include "services/openai/response.h"
#include "services/openai/stop_matcher.h"
#include "services/router/generation/prompt.h"

namespace skein::services {

class ChoiceText {
 public:
  // The model's tokenizer outlives this.
  ChoiceText(const engine::Tokenizer& tokenizer, const openai::GenerationOptions& options,
             int index, bool at_text_start);

  // The prompt as the beginning of the text (`echo`). `logprobs`: of the prompt's tokens, or of all
  // but the first; may be empty when none were asked for.
  void Echo(const PreparedPrompt& prompt, const v1::SampledTokens& logprobs);
  void Push(int32_t token, const v1::SampledToken& sampled);
  // The end of the choice: `stop_token` is the stop token that was sampled, -1 for none; `is_eos`:
  // it is the model's own.
  void Finish(bool length, int32_t stop_token, bool is_eos);

  // A stop string was found: nothing that follows is text.
  bool stopped() const { return matcher_.matched(); }
  bool has_text() const { return !pending_.text.empty(); }

  // What has come since the last call. Texts and lists of all calls concatenate to the whole.
  openai::Choice Take();

 private:
  void AddLogprob(int32_t token, const v1::SampledToken* sampled);

  const engine::Tokenizer& tokenizer_;
  const int64_t min_tokens_;
  const bool skip_special_;
  engine::StreamDecoder decoder_;
  openai::StopMatcher matcher_;
  openai::Choice pending_;
  int64_t sampled_ = 0;
  int64_t text_offset_ = 0;  // characters of the text before the next token
};

}  // namespace skein::services
