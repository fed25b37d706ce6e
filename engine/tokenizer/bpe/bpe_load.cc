// BpeModel::Create: the `model` section of tokenizer.json.
#include <cstdio>

#include "engine/tokenizer/bpe/bpe.h"
#include "engine/tokenizer/bpe/byte_level.h"

namespace skein::engine {
namespace {

absl::Status RefuseUnlessEmpty(JsonReader* reader, const char* key) {
  const std::string value = reader->String(key, "");
  if (!reader->ok() || value.empty()) return reader->status();
  return NotSupported(reader->PathOf(key), value);
}

absl::Status RefuseDropout(const JsonReader& reader) {
  const Json* dropout = reader.Find("dropout");
  if (dropout == nullptr || (dropout->is_number() && dropout->get<double>() == 0))
    return absl::OkStatus();
  return NotSupported(reader.PathOf("dropout"), *dropout);
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(const TokenizerJson& json, bool byte_level) {
  BpeModel model;
  model.byte_level_ = byte_level;
  const Json* section = JsonReader(json.document, "tokenizer.json").Find("model");
  absl::Status status = model.ReadOptions(section);
  if (status.ok() && !json.vocab_error.empty())
    status = absl::InvalidArgumentError(json.vocab_error);
  if (status.ok()) status = model.ReadVocab(json);
  if (status.ok()) status = model.IndexVocab(byte_level);
  if (status.ok()) status = model.ReadMerges(json, byte_level);
  if (!status.ok()) return status;
  model.FindByteIds();
  model.FindWhetherWordsCut();
  const std::string unk = JsonReader(*section, "model").String("unk_token", "");
  if (!unk.empty()) {
    model.unk_id_ = model.by_bytes_.Find(unk);
    if (model.unk_id_ < 0)
      return absl::InvalidArgumentError("model.unk_token: " + Quote(unk) +
                                        " is not in the vocabulary");
  }
  return model;
}

absl::Status BpeModel::ReadOptions(const Json* model) {
  if (model == nullptr) return absl::InvalidArgumentError("tokenizer.json: has no model");
  JsonReader reader(*model, "model");
  const std::string type = reader.String("type", "BPE");
  if (!reader.ok()) return reader.status();
  if (type != "BPE") return NotSupported("model.type", type);
  if (absl::Status s = RefuseDropout(reader); !s.ok()) return s;
  if (absl::Status s = RefuseUnlessEmpty(&reader, "continuing_subword_prefix"); !s.ok()) return s;
  if (absl::Status s = RefuseUnlessEmpty(&reader, "end_of_word_suffix"); !s.ok()) return s;
  byte_fallback_ = reader.Bool("byte_fallback", false);
  fuse_unk_ = reader.Bool("fuse_unk", false);
  ignore_merges_ = reader.Bool("ignore_merges", false);
  reader.String("unk_token", "");
  return reader.status();
}

absl::Status BpeModel::ReadVocab(const TokenizerJson& json) {
  if (json.vocab_ids.empty()) return absl::InvalidArgumentError("model.vocab: missing or empty");
  int64_t id_max = -1;
  for (const int64_t id : json.vocab_ids) {
    if (id < 0 || id > kIdMax)
      return absl::InvalidArgumentError("model.vocab: id " + std::to_string(id) +
                                        " is out of range");
    id_max = std::max(id_max, id);
  }
  tokens_ = std::make_unique<std::vector<std::string>>(static_cast<size_t>(id_max + 1));
  std::vector<bool> taken(tokens_->size());
  for (size_t i = 0; i < json.vocab_ids.size(); ++i) {
    const auto id = static_cast<size_t>(json.vocab_ids[i]);
    if (taken[id])
      return absl::InvalidArgumentError("model.vocab: id " + std::to_string(id) +
                                        " is given twice");
    taken[id] = true;
    (*tokens_)[id] = json.vocab_tokens[i];
  }
  wholeness_ = std::make_unique<std::atomic<uint8_t>[]>(tokens_->size());
  return absl::OkStatus();
}

// Byte-level: entries with characters outside the alphabet, such as added tokens, stay out of the
// index; BPE cannot make them.
absl::Status BpeModel::IndexVocab(bool byte_level) {
  bytes_ = std::make_unique<std::vector<std::string>>(byte_level ? tokens_->size() : 0);
  by_bytes_ = StringTable(tokens_->size());
  for (size_t id = 0; id < tokens_->size(); ++id) {
    std::string_view key = (*tokens_)[id];
    if (key.empty()) continue;
    if (byte_level) {
      std::optional<std::string> bytes = ByteLevelBytes(key);
      if (!bytes) continue;
      key = (*bytes_)[id] = *std::move(bytes);
    }
    if (!by_bytes_.Insert(key, static_cast<int32_t>(id)))
      return absl::InvalidArgumentError("model.vocab: token " + Quote((*tokens_)[id]) +
                                        " is given twice");
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadMerges(const TokenizerJson& json, bool byte_level) {
  const size_t count = json.merges.size() / 2;
  merges_ = PairTable(count);
  for (size_t rank = 0; rank < count; ++rank) {
    std::string left(json.merges[2 * rank]), right(json.merges[2 * rank + 1]);
    if (byte_level) {
      std::optional<std::string> left_bytes = ByteLevelBytes(left);
      std::optional<std::string> right_bytes = ByteLevelBytes(right);
      if (!left_bytes || !right_bytes) continue;  // no text leads there
      left = *std::move(left_bytes);
      right = *std::move(right_bytes);
    }
    const int32_t left_id = Find(left), right_id = Find(right), merged_id = Find(left + right);
    if (left_id < 0 || right_id < 0 || merged_id < 0)
      return absl::InvalidArgumentError("model.merges: " + Quote(json.merges[2 * rank]) + " + " +
                                        Quote(json.merges[2 * rank + 1]) +
                                        " is not in the vocabulary");
    merges_.Put(left_id, right_id,
                static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(merged_id));
  }
  return absl::OkStatus();
}

// A merge that joined a character to the "▁" after it would leave an entry with the two inside. "▁"
// itself must be known, or a run of unknown characters could reach over it.
void BpeModel::FindWhetherWordsCut() {
  if (byte_level_ || ignore_merges_ || by_bytes_.Find(kSentencePieceSpace) < 0) return;
  for (const std::string& token : *tokens_) {
    const std::string_view rest = std::string_view(token).substr(
        std::min(token.find_first_not_of(kSentencePieceSpace), token.size()));
    if (rest.find(kSentencePieceSpace) != std::string_view::npos) return;
  }
  cuts_before_space_ = true;
}

void BpeModel::FindByteIds() {
  for (int b = 0; b < 256; ++b) {
    if (byte_level_) {
      const char byte = static_cast<char>(b);
      byte_ids_[b] = by_bytes_.Find(std::string_view(&byte, 1));
    } else {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", b);
      byte_ids_[b] = by_bytes_.Find(name);
    }
  }
}

}  // namespace skein::engine
