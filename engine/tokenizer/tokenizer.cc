#include "engine/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/tokenizer/parts.h"
#include "engine/tokenizer/stream_decoder.h"
#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

const std::string kNoBytes;

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!IsUtf8(text)) text = repaired = ReplaceIllFormed(text);
  std::vector<int32_t> ids;
  const Surroundings& around = parts_->surroundings;
  if (options.add_special_tokens) ids = around.before;
  BpeModel::Scratch scratch;
  std::vector<Segment> segments;
  parts_->raw_tokens.Cut(text, !options.parse_special, &segments);
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      parts_->EncodeBetween(text.substr(segment.begin, segment.end - segment.begin),
                            segment.begin == 0, options, &scratch, &ids);
    }
  }
  if (options.add_special_tokens) ids.insert(ids.end(), around.after.begin(), around.after.end());
  return ids;
}

int64_t Tokenizer::LeastTokens(std::string_view text) const {
  const size_t most = parts_->token_bytes_max;
  if (most == 0) return 0;
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  const size_t kept = parts_->normalizer.empty()
                          ? text.size()
                          : static_cast<size_t>(std::count_if(text.begin(), text.end(), is_ascii));
  return static_cast<int64_t>((kept + most - 1) / most);
}

void Tokenizer::Parts::EncodeBetween(std::string_view text, bool at_start, EncodeOptions options,
                                     BpeModel::Scratch* scratch, std::vector<int32_t>* ids) const {
  std::string normalized;
  if (!normalizer.empty()) text = normalized = normalizer.Apply(text);
  std::vector<Segment> segments;
  normalized_tokens.Cut(text, !options.parse_special, &segments);
  Pieces pieces;
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      ids->push_back(segment.id);
      continue;
    }
    pre_tokenizer.Split(text.substr(segment.begin, segment.end - segment.begin),
                        at_start && segment.begin == 0, &pieces);
    for (const std::string_view piece : pieces.views) model.Encode(piece, scratch, ids);
  }
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  TextAssembler assembler(parts_->decoder.text_rules(), /*at_text_start=*/true);
  std::string text;
  for (const int32_t id : ids)
    if (!skip_special || !IsSpecial(id)) assembler.Append(TokenBytes(id), &text);
  assembler.Finish(&text);
  return text;
}

const std::string& Tokenizer::TokenBytes(int32_t id) const {
  return id >= 0 && id < vocab_size() ? parts_->bytes[static_cast<size_t>(id)] : kNoBytes;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->special[static_cast<size_t>(id)];
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->bytes.size()); }

std::optional<int32_t> Tokenizer::SpecialId(std::string_view text) const {
  const auto it = parts_->added_ids.find(std::string(text));
  if (it != parts_->added_ids.end()) return it->second;
  const int32_t id = parts_->model.Find(text);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

const std::optional<std::string>& Tokenizer::bos_token() const { return parts_->config.bos; }
const std::optional<std::string>& Tokenizer::eos_token() const { return parts_->config.eos; }
const std::optional<std::string>& Tokenizer::unk_token() const { return parts_->config.unk; }
const std::optional<std::string>& Tokenizer::pad_token() const { return parts_->config.pad; }

std::optional<int32_t> Tokenizer::bos_id() const {
  return bos_token() ? SpecialId(*bos_token()) : std::nullopt;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return eos_token() ? SpecialId(*eos_token()) : std::nullopt;
}

const std::optional<std::string>& Tokenizer::chat_template() const {
  return parts_->config.chat_template;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, StreamOptions options)
    : tokenizer_(tokenizer),
      options_(options),
      assembler_(tokenizer.parts_->decoder.text_rules(), options.at_text_start) {}

std::string StreamDecoder::Push(int32_t id) {
  std::string delta;
  if (!options_.skip_special || !tokenizer_.IsSpecial(id))
    assembler_.Append(tokenizer_.TokenBytes(id), &delta);
  return delta;
}

std::string StreamDecoder::Flush() {
  std::string delta;
  assembler_.Finish(&delta);
  return delta;
}

}  // namespace skein::engine
