// Byte-pair encoding of one piece of text (Sennrich et al. 2016, section 3.2): of all adjacent
// pairs the one with the lowest rank, the leftmost of equals, is merged until no pair has a rank.
// Short pieces rescan, long ones keep a heap: O(n log n).
//
// Threads: const methods from any number of threads at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/bpe/flat_table.h"
#include "engine/tokenizer/text/tokenizer_json.h"

namespace skein::engine {

// U+2581, which stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";

class BpeModel {
 public:
  // The largest id accepted, so that a hostile file cannot ask for tables without bound.
  static constexpr int32_t kIdMax = (1 << 21) - 1;

  // byte_level: the vocabulary is spelled in the byte-level alphabet. Errors as
  // Tokenizer::FromJson's.
  static absl::StatusOr<BpeModel> Create(const TokenizerJson& json, bool byte_level);

  // Buffers that calls of Encode reuse; one a thread.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous, next;  // indices, -1 for none
    };
    struct Candidate {
      uint32_t rank;
      int32_t at;           // index of the left symbol
      int32_t left, right;  // ids when the candidate was made; stale if they have changed
      int32_t merged;
    };
    std::vector<int32_t> ids;
    std::vector<uint64_t> merges;  // merges[i]: of ids[i] and ids[i + 1]
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of `piece`. REQUIRES: valid UTF-8.
  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

  // The spelling of each id in tokenizer.json; "" where the vocabulary has a hole.
  const std::vector<std::string>& tokens() const { return *tokens_; }

  // Each byte of a piece is in one of its tokens: none is unknown, dropped or fused.
  bool KnowsEveryByte() const;

  // The id of the vocabulary entry whose bytes are `bytes`, -1 for none.
  int32_t Find(std::string_view bytes) const { return by_bytes_.Find(bytes); }

 private:
  // A merge is rank << 32 | id of the result; kNoMerge is above all of them.
  static constexpr uint64_t kNoMerge = ~uint64_t{0};
  enum Wholeness : uint8_t { kUnknown, kWhole, kSplit };

  BpeModel() = default;
  absl::Status ReadOptions(const Json* model);
  absl::Status ReadVocab(const TokenizerJson& json);
  absl::Status IndexVocab(bool byte_level);
  absl::Status ReadMerges(const TokenizerJson& json, bool byte_level);
  void FindWhetherWordsCut();
  void FindByteIds();

  uint64_t MergeOf(int32_t left, int32_t right) const {
    const uint64_t* merge = merges_.Find(left, right);
    return merge ? *merge : kNoMerge;
  }
  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;
  void Begin(std::string_view piece, std::vector<int32_t>* ids) const;
  void BeginWithBytes(std::string_view piece, std::vector<int32_t>* ids) const;
  void BeginWithChars(std::string_view piece, std::vector<int32_t>* ids) const;
  bool AppendBytesOf(std::string_view c, std::vector<int32_t>* ids) const;
  void MergeByScan(Scratch* scratch) const;
  void MergeByHeap(Scratch* scratch) const;
  void Offer(int32_t at, Scratch* scratch) const;

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  // No merge joins another character to a "▁" after it, so that a text without pre-tokenizer can be
  // cut there all the same.
  bool cuts_before_space_ = false;
  int32_t unk_id_ = -1;
  // Behind pointers: the table's views stay good when the model moves.
  std::unique_ptr<std::vector<std::string>> tokens_;
  std::unique_ptr<std::vector<std::string>>
      bytes_;  // what by_bytes_ views; empty unless byte-level
  StringTable by_bytes_;
  PairTable merges_;
  std::array<int32_t, 256>
      byte_ids_;  // byte-level: of the single byte; else of <0xXX>; -1 for none
  // Whether an entry's own bytes encode to the entry alone, found out when first needed. Then most
  // words of ordinary text are one look-up.
  std::unique_ptr<std::atomic<uint8_t>[]> wholeness_;
};

}  // namespace skein::engine
