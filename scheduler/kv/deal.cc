#include "scheduler/kv/deal.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

int Piece::RankOf(InstanceId instance) const {
  const auto it = std::find(members.begin(), members.end(), instance);
  return it == members.end() ? -1 : static_cast<int>(it - members.begin());
}

std::vector<int32_t> BlocksOfSpans(const std::vector<TokenSpan>& spans, int64_t block_tokens) {
  std::vector<int32_t> blocks;
  for (const TokenSpan& span : spans) {
    for (int64_t at = span.position; at < span.position + span.count; at += block_tokens) {
      blocks.push_back(static_cast<int32_t>(at / block_tokens));
    }
  }
  return blocks;
}

Dealer::Dealer(const DealSizes& sizes) : sizes_(sizes) {
  SKEIN_CHECK_MSG(sizes.prompt_tokens > 0 && sizes.block_tokens > 0 && sizes.rank_tokens_max > 0,
                  "sizes are positive");
  SKEIN_CHECK_MSG(Blocks(sizes.prompt_tokens) <= std::numeric_limits<int32_t>::max(),
                  "a prompt has less than 2^31 blocks");
}

int64_t Dealer::Blocks(int64_t tokens) const {
  return (tokens + sizes_.block_tokens - 1) / sizes_.block_tokens;
}

absl::Status Dealer::AddChunk(const DealtChunk& chunk) {
  const auto refuse = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat("chunks: chunk ", chunks_.size(), " ", why...));
  };
  if (chunk.tokens < 1) return refuse("has ", chunk.tokens, " tokens");
  if (chunk.tokens > sizes_.prompt_tokens - added_tokens_) {
    return refuse("ends beyond the prompt of ", sizes_.prompt_tokens, " tokens");
  }
  const int64_t end = added_tokens_ + chunk.tokens;
  if (end % sizes_.block_tokens != 0 && end != sizes_.prompt_tokens) {
    return refuse("ends at ", end, ", within a block of ", sizes_.block_tokens, " tokens");
  }
  if (chunk.members.empty()) return refuse("has no members");
  const std::set<InstanceId> members(chunk.members.begin(), chunk.members.end());
  if (members.size() != chunk.members.size()) return refuse("has a member twice");
  if (!chunks_.empty()) {
    for (InstanceId before : chunks_.back().members) {
      if (members.count(before) == 0) return refuse("leaves out instance ", before.value);
    }
  }
  chunks_.push_back(chunk);
  added_tokens_ = end;
  return absl::OkStatus();
}

std::optional<Piece> Dealer::Next() {
  if (piece_ == pieces_) {
    if (chunk_ + 1 == chunks()) return std::nullopt;
    EnterChunk();
  }
  const DealtChunk& chunk = chunks_[chunk_];
  const auto ranks = static_cast<int>(chunk.members.size());
  Piece piece{.chunk = chunk_, .index = piece_, .members = chunk.members};
  if (chunk.members.size() > members_before_) piece.moves = DealHistory(chunk.members);
  members_before_ = chunk.members.size();
  for (InstanceId member : chunk.members) piece.history.push_back(holders_.at(member).history);

  const int64_t blocks = Blocks(chunk.tokens);
  const int64_t count = blocks / pieces_ + (piece_ < blocks % pieces_ ? 1 : 0);
  piece.spans = DealSpans(next_block_, count, ranks);
  next_block_ += count;
  piece.ends_chunk = ++piece_ == pieces_;
  piece.last = next_block_ == Blocks(sizes_.prompt_tokens);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<TokenSpan>& spans = piece.spans[rank];
    Holder& holder = holders_.at(chunk.members[rank]);
    for (int32_t block : BlocksOfSpans(spans, sizes_.block_tokens)) {
      holder.history.push_back(block);
      holder.has[block] = true;
    }
    const bool ends =
        !spans.empty() && spans.back().position + spans.back().count == sizes_.prompt_tokens;
    if (ends) piece.sampler = rank;
  }
  return piece;
}

void Dealer::EnterChunk() {
  const DealtChunk& chunk = chunks_[++chunk_];
  const int64_t rank_blocks = std::max<int64_t>(1, sizes_.rank_tokens_max / sizes_.block_tokens);
  const int64_t most = rank_blocks * static_cast<int64_t>(chunk.members.size());
  pieces_ = static_cast<int>((Blocks(chunk.tokens) + most - 1) / most);
  piece_ = 0;
  for (InstanceId member : chunk.members) {
    Holder& holder = holders_[member];
    holder.has.resize(Blocks(sizes_.prompt_tokens));
  }
}

// Merges spans of adjacent shards.
std::vector<std::vector<TokenSpan>> Dealer::DealSpans(int64_t first, int64_t count,
                                                      int ranks) const {
  std::vector<std::vector<TokenSpan>> spans(ranks);
  const int shards = 2 * ranks;
  for (int shard = 0; shard < shards; ++shard) {
    const int64_t blocks = count / shards + (shard < count % shards ? 1 : 0);
    if (blocks == 0) continue;
    std::vector<TokenSpan>& mine = spans[std::min(shard, shards - 1 - shard)];
    const int64_t begin = first * sizes_.block_tokens;
    const int64_t end = std::min((first + blocks) * sizes_.block_tokens, sizes_.prompt_tokens);
    if (!mine.empty() && mine.back().position + mine.back().count == begin) {
      mine.back().count += end - begin;
    } else {
      mine.push_back({begin, end - begin});
    }
    first += blocks;
  }
  return spans;
}

// Minimises moves: larger counts go to members that already have most, and only blocks above a
// target move.
std::vector<int64_t> Dealer::Targets(const std::vector<InstanceId>& members) const {
  const auto ranks = static_cast<int64_t>(members.size());
  std::vector<int64_t> targets(ranks, next_block_ / ranks);
  std::vector<int> by_count(ranks);
  std::iota(by_count.begin(), by_count.end(), 0);
  std::stable_sort(by_count.begin(), by_count.end(), [&](int a, int b) {
    return holders_.at(members[a]).history.size() > holders_.at(members[b]).history.size();
  });
  for (int64_t i = 0; i < next_block_ % ranks; ++i) ++targets[by_count[i]];
  return targets;
}

std::vector<Move> Dealer::DealHistory(const std::vector<InstanceId>& members) {
  std::vector<Move> moves;
  if (next_block_ == 0) return moves;
  const std::vector<int64_t> targets = Targets(members);
  const auto ranks = static_cast<int>(members.size());
  const auto surplus = [&](int rank) {
    return static_cast<int64_t>(holders_.at(members[rank]).history.size()) - targets[rank];
  };
  int to = 0;
  for (int from = 0; from < ranks; ++from) {
    while (surplus(from) > 0) {
      while (surplus(to) >= 0) ++to;
      Give(members, from, to, std::min(surplus(from), -surplus(to)), &moves);
    }
  }
  return moves;
}

// Moves the giver's last blocks.
void Dealer::Give(const std::vector<InstanceId>& members, int from, int to, int64_t count,
                  std::vector<Move>* moves) {
  Holder& giver = holders_.at(members[from]);
  Holder& taker = holders_.at(members[to]);
  Move move{.from = from, .to = to, .blocks = {}};
  for (auto block = giver.history.end() - count; block != giver.history.end(); ++block) {
    taker.history.push_back(*block);
    if (taker.has[*block]) continue;
    taker.has[*block] = true;
    move.blocks.push_back(*block);
  }
  giver.history.erase(giver.history.end() - count, giver.history.end());
  std::sort(taker.history.begin(), taker.history.end());
  if (!move.blocks.empty()) moves->push_back(std::move(move));
}

absl::StatusOr<std::vector<Piece>> Deal(const DealSizes& sizes,
                                        const std::vector<DealtChunk>& chunks) {
  Dealer dealer(sizes);
  for (const DealtChunk& chunk : chunks) {
    if (absl::Status status = dealer.AddChunk(chunk); !status.ok()) return status;
  }
  std::vector<Piece> pieces;
  while (std::optional<Piece> piece = dealer.Next()) pieces.push_back(*std::move(piece));
  return pieces;
}

int64_t BlocksToFill(Dealer dealer, InstanceId instance) {
  if (!dealer.Whole() && dealer.chunks() > 0) {
    const absl::Status added =
        dealer.AddChunk({.tokens = dealer.sizes().prompt_tokens - dealer.tokens_added(),
                         .members = dealer.all_chunks().back().members});
    SKEIN_CHECK_MSG(added.ok(), "the rest of a prompt is a valid chunk");
  }
  int64_t blocks = 0;
  while (const std::optional<Piece> piece = dealer.Next()) {
    const int rank = piece->RankOf(instance);
    if (rank < 0) continue;
    blocks +=
        static_cast<int64_t>(BlocksOfSpans(piece->spans[rank], dealer.sizes().block_tokens).size());
    for (const Move& move : piece->moves) {
      if (move.to == rank) blocks += static_cast<int64_t>(move.blocks.size());
    }
  }
  return blocks;
}

}  // namespace skein::scheduler
