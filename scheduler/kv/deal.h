// Deal: for a prompt that several instances compute together, which of them computes which blocks,
// and from which instance's copy each of them reads the earlier blocks (Tetris section 4.1, figures
// 5 and 6).
//
// Everything is whole blocks; global block g holds tokens [g * block_tokens, (g + 1) *
// block_tokens). A chunk that is longer than a step allows is cut into pieces of nearly equal size.
// A piece is what one step of its members runs.
//
// Zigzag: the n blocks of a piece over N ranks are 2N shards of floor(n / 2N) or ceil(n / 2N)
// blocks, larger ones first. Shards i and 2N - 1 - i go to rank i, so each rank gets early tokens
// (short attention) and late tokens (long attention). Shards may be empty.
//
// The history of a piece is all blocks of earlier pieces. An instance attends over the blocks that
// it computed until members join. Then the history is dealt anew over the present members, as
// evenly as whole blocks allow (counts differ by at most 1) and with the fewest moves. A move
// copies a block. The giver keeps its copy for its handoff, but no longer attends over it. An
// instance that is dealt a block whose copy it still has needs no move.
//
// Pure and deterministic: each member computes the deal for itself, and all get the same one. The
// deal of a chunk depends on that chunk and on earlier ones only, so later chunks may be added
// later.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler {

struct TokenSpan {
  int64_t position = 0;
  int64_t count = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Blocks that rank `from` copies to rank `to`; ascending.
struct Move {
  int from = 0;
  int to = 0;
  std::vector<int32_t> blocks;
  bool operator==(const Move&) const = default;
};

struct Piece {
  int chunk = 0;
  int index = 0;                              // within its chunk
  bool ends_chunk = false;                    // the chunk's last piece
  std::vector<InstanceId> members;            // by rank
  std::vector<std::vector<TokenSpan>> spans;  // by rank: ascending, each starts on a block boundary
  // By rank: the blocks that it attends from (after the moves), ascending. Disjoint, together all
  // blocks before the piece.
  std::vector<std::vector<int32_t>> history;
  std::vector<Move> moves;  // by (from, to)
  bool last = false;        // of the prompt
  int sampler = -1;         // rank of the prompt's last token, in the last piece
  bool operator==(const Piece&) const = default;

  int RankOf(InstanceId instance) const;  // -1: not a member
};

// The blocks that hold `spans`, in order.
std::vector<int32_t> BlocksOfSpans(const std::vector<TokenSpan>& spans, int64_t block_tokens);

struct DealtChunk {
  int64_t tokens = 0;
  std::vector<InstanceId> members;  // by rank
};

struct DealSizes {
  int64_t prompt_tokens = 0;
  int64_t block_tokens = 16;
  // The most tokens of one rank in one piece; a rank gets one block at least. Equal at all members.
  int64_t rank_tokens_max = 512;
};

// A value: a copy deals on by itself.
class Dealer {
 public:
  explicit Dealer(const DealSizes& sizes);  // REQUIRES: positive sizes

  // INVALID_ARGUMENT "chunks: …": no tokens, beyond the prompt, ends within a block before the
  // prompt's end, no members, one twice, or without one of the chunk before. Nothing is added then.
  absl::Status AddChunk(const DealtChunk& chunk);

  // The next piece of the chunks added so far, in order.
  std::optional<Piece> Next();

  bool Whole() const { return added_tokens_ == sizes_.prompt_tokens; }  // no chunk is missing
  int chunks() const { return static_cast<int>(chunks_.size()); }
  int64_t tokens_added() const { return added_tokens_; }
  const std::vector<DealtChunk>& all_chunks() const { return chunks_; }
  const DealSizes& sizes() const { return sizes_; }

 private:
  struct Holder {
    std::vector<int32_t> history;  // attended from, ascending
    std::vector<bool> has;         // by global block: computed or received here
  };

  int64_t Blocks(int64_t tokens) const;
  void EnterChunk();
  std::vector<Move> DealHistory(const std::vector<InstanceId>& members);
  std::vector<int64_t> Targets(const std::vector<InstanceId>& members) const;
  void Give(const std::vector<InstanceId>& members, int from, int to, int64_t count,
            std::vector<Move>* moves);
  std::vector<std::vector<TokenSpan>> DealSpans(int64_t first, int64_t count, int ranks) const;

  DealSizes sizes_;
  std::vector<DealtChunk> chunks_;
  int64_t added_tokens_ = 0;

  int chunk_ = -1;  // the one being dealt
  int pieces_ = 0;  // it is cut into
  int piece_ = 0;   // next of them
  int64_t next_block_ = 0;
  size_t members_before_ = 0;
  std::map<InstanceId, Holder> holders_;
};

// All pieces of a prompt, or of its first chunks.
absl::StatusOr<std::vector<Piece>> Deal(const DealSizes& sizes,
                                        const std::vector<DealtChunk>& chunks);

// Blocks that `instance` computes or receives in the pieces that are still to come. If chunks are
// missing, the members of the last chunk are assumed to compute the rest.
int64_t BlocksToFill(Dealer dealer, InstanceId instance);

}  // namespace skein::scheduler
