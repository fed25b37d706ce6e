#include "services/router/generation/choice_text.h"

#include <algorithm>
#include <utility>

namespace skein::services {
namespace {

int64_t Characters(const std::string& bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Everything of a choice that stays the same from one piece to the next.
openai::Choice EmptyLike(const openai::Choice& choice) {
  openai::Choice next;
  next.index = choice.index;
  next.with_logprobs = choice.with_logprobs;
  next.top_logprobs = choice.top_logprobs;
  next.tokens_as_ids = choice.tokens_as_ids;
  next.with_token_ids = choice.with_token_ids;
  return next;
}

}  // namespace

ChoiceText::ChoiceText(const engine::Tokenizer& tokenizer, const openai::GenerationOptions& options,
                       int index, bool at_text_start)
    : tokenizer_(tokenizer),
      min_tokens_(options.min_tokens),
      skip_special_(options.skip_special_tokens),
      decoder_(tokenizer,
               {.skip_special = options.skip_special_tokens, .at_text_start = at_text_start}),
      matcher_(options.stop, options.include_stop_str_in_output) {
  pending_.index = index;
  pending_.with_logprobs = options.top_logprobs >= 0;
  pending_.top_logprobs = options.top_logprobs;
  pending_.tokens_as_ids = options.tokens_as_ids;
  pending_.with_token_ids = options.return_token_ids;
}

void ChoiceText::AddLogprob(int32_t token, const v1::SampledToken* sampled) {
  openai::TokenLogprob entry;
  entry.bytes = tokenizer_.TokenBytes(token);
  entry.text_offset = text_offset_;
  entry.token = token;
  if (!skip_special_ || !tokenizer_.IsSpecial(token)) text_offset_ += Characters(entry.bytes);
  if (!pending_.with_logprobs) return;
  if (sampled != nullptr) {
    entry.logprob = sampled->logprob();
    for (const v1::TokenLogprob& top : sampled->top()) {
      entry.top.push_back({tokenizer_.TokenBytes(top.token()), top.logprob(), top.token()});
    }
  }
  pending_.logprobs.push_back(std::move(entry));
}

void ChoiceText::Echo(const PreparedPrompt& prompt, const v1::SampledTokens& logprobs) {
  pending_.text += prompt.text;
  if (!pending_.with_logprobs) {
    text_offset_ += Characters(prompt.text);
    return;
  }
  // The first token has nothing before it that it could be sampled from.
  const int given = logprobs.tokens_size(), tokens = static_cast<int>(prompt.tokens.size());
  for (int i = 0; i < tokens; ++i) {
    const int at = i - (tokens - given);
    AddLogprob(prompt.tokens[static_cast<size_t>(i)],
               i > 0 && at >= 0 ? &logprobs.tokens(at) : nullptr);
  }
}

void ChoiceText::Push(int32_t token, const v1::SampledToken& sampled) {
  if (stopped()) return;
  const bool check = sampled_++ >= min_tokens_;
  AddLogprob(token, &sampled);
  if (pending_.with_token_ids) pending_.token_ids.push_back(token);
  const std::string text = decoder_.Push(token);
  pending_.text += check ? matcher_.Push(text) : matcher_.PushUnchecked(text);
}

void ChoiceText::Finish(bool length, int32_t stop_token, bool is_eos) {
  if (!stopped()) {
    pending_.text += matcher_.Push(decoder_.Flush());
    if (!stopped()) pending_.text += matcher_.Flush();
  }
  if (stop_token >= 0 && pending_.with_token_ids) pending_.token_ids.push_back(stop_token);
  pending_.finish_reason = length && !stopped() ? "length" : "stop";
  if (stopped()) {
    pending_.stop_reason = matcher_.match();
  } else if (!length && stop_token >= 0 && !is_eos) {
    pending_.stop_reason = stop_token;
  }
}

openai::Choice ChoiceText::Take() {
  openai::Choice out = EmptyLike(pending_);
  std::swap(out, pending_);
  return out;
}

}  // namespace skein::services
