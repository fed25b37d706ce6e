#include "scheduler/worker/group/group_offers.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

OfferedSequence SequenceOf(const FeedOffer& whole, BlockTable blocks) {
  auto spec = std::make_shared<RequestSpec>();
  const auto output_begin = whole.tokens.begin() + whole.prompt_tokens;
  spec->id = whole.id;
  spec->prompt.assign(whole.tokens.begin(), output_begin);
  spec->sent_tokens = whole.sent_tokens;
  spec->max_tokens = whole.max_tokens;
  spec->min_tokens = whole.min_tokens;
  spec->sampling = whole.sampling;
  spec->stop_token_ids = whole.stop_token_ids;
  spec->priority = whole.priority;
  return {.epoch = whole.request_epoch,
          .spec = std::move(spec),
          .blocks = std::move(blocks),
          .kv_tokens = whole.kv_tokens,
          .output = {output_begin, whole.tokens.end()}};
}

// What all parts of its offer say.
FeedOffer HeadOf(uint64_t epoch, const OfferedSequence& sequence) {
  const RequestSpec& spec = *sequence.spec;
  return {.epoch = epoch,
          .id = spec.id,
          .request_epoch = sequence.epoch,
          .prompt_tokens = PromptTokens(spec),
          .sent_tokens = spec.sent_tokens,
          .output_tokens = static_cast<int64_t>(sequence.output.size()),
          .max_tokens = spec.max_tokens,
          .min_tokens = spec.min_tokens,
          .kv_tokens = sequence.kv_tokens,
          .sampling = spec.sampling,
          .stop_token_ids = spec.stop_token_ids,
          .priority = spec.priority};
}

void SendParts(FeedOffer part, const OfferedSequence& sequence,
               const std::function<void(const FeedOffer& part)>& send) {
  std::vector<int32_t> tokens = sequence.spec->prompt;
  tokens.insert(tokens.end(), sequence.output.begin(), sequence.output.end());
  for (size_t first = 0; first < tokens.size(); first += FeedOffer::kTokensMax) {
    const size_t end = std::min(first + FeedOffer::kTokensMax, tokens.size());
    part.first = static_cast<int64_t>(first);
    part.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                       tokens.begin() + static_cast<std::ptrdiff_t>(end));
    send(part);
    part.sampling.clear();
    part.stop_token_ids.clear();
  }
}

}  // namespace

absl::Status CheckOffer(const RequestSpec& spec, int64_t total_blocks, int64_t tokens_per_block) {
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  const int64_t blocks = (tokens + tokens_per_block - 1) / tokens_per_block;
  if (blocks > total_blocks) {
    return absl::ResourceExhaustedError(absl::StrCat("KV blocks: the request needs ", blocks,
                                                     " at each rank, which has ", total_blocks));
  }
  if (spec.sampling.size() > FeedOffer::kSamplingMax) {
    return absl::InvalidArgumentError(absl::StrCat("sampling: ", spec.sampling.size(),
                                                   " bytes, at most ", FeedOffer::kSamplingMax,
                                                   " in a bound group"));
  }
  return absl::OkStatus();
}

void SendOffer(uint64_t epoch, int ranks, const OfferedSequence& sequence, FeedEffects* effects) {
  SendParts(HeadOf(epoch, sequence), sequence,
            [&](const FeedOffer& part) { SendToMembers(ranks, part, effects); });
}

void SendHandedOver(uint64_t epoch, const OfferedSequence& sequence, TimeUs age_us,
                    FeedEffects* effects) {
  FeedOffer head = HeadOf(epoch, sequence);
  head.age_us = age_us;
  SendParts(std::move(head), sequence, [&](const FeedOffer& part) {
    effects->push_back(SendFeed{0, part});
  });
}

GroupOffers::GroupOffers(Config config, ComingBlocks* coming, RoomFor room)
    : config_(std::move(config)), coming_(coming), room_(std::move(room)) {}

absl::StatusOr<std::optional<OfferedSequence>> GroupOffers::Take(const FeedOffer& part) {
  const Key key(part.id, part.request_epoch);
  FeedOffer& offer = part.first == 0 ? (parts_[key] = part) : parts_[key];
  if (part.first != 0) {
    if (part.first != static_cast<int64_t>(offer.tokens.size())) {
      return absl::InternalError(absl::StrCat("an offer's part begins at token ", part.first,
                                              " after ", offer.tokens.size()));
    }
    offer.tokens.insert(offer.tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  const int64_t tokens = offer.prompt_tokens + offer.output_tokens;
  if (static_cast<int64_t>(offer.tokens.size()) < tokens) return std::nullopt;
  const FeedOffer whole = std::move(parts_.extract(key).mapped());
  absl::StatusOr<BlockTable> blocks = TakeBlocks(whole);
  if (!blocks.ok()) return blocks.status();
  return SequenceOf(whole, *std::move(blocks));
}

// The blocks with the KV of an offer; it has none: null.
absl::StatusOr<BlockTable> GroupOffers::TakeBlocks(const FeedOffer& offer) {
  if (offer.kv_tokens == 0) return BlockTable();
  const Key key(offer.id, offer.request_epoch);
  const bool fits = coming_->Has(key) && static_cast<int64_t>(coming_->at(key).blocks->size()) ==
                                             BlocksOf(offer.kv_tokens);
  if (fits) return coming_->TakeWhole(key);
  return absl::InternalError(
      absl::StrCat("request ", ToString(offer.id), " is offered with KV that is not here"));
}

GroupOffers::Answer GroupOffers::Reserve(const FeedReserve& reserve) {
  const Key key(reserve.id, reserve.request_epoch);
  Answer answer{.reserved = {.epoch = config_.epoch,
                             .number = reserve.number,
                             .id = reserve.id,
                             .request_epoch = reserve.request_epoch,
                             .why = Keep(key, reserve.tokens)}};
  if (!answer.reserved.why.ok()) return answer;
  const ComingBlocks::Kept& kept = coming_->at(key);
  answer.reserved.blocks = *kept.blocks;
  answer.reserved.memory = config_.memory;
  answer.grant = kept.grant;
  return answer;
}

absl::Status GroupOffers::Keep(const Key& key, int64_t tokens) {
  const int64_t blocks = BlocksOf(tokens);
  if (coming_->Has(key) || blocks < 1) {
    return absl::InvalidArgumentError("the blocks are kept already, or none are asked for");
  }
  if (blocks > static_cast<int64_t>(FeedReserved::kBlocksMax) ||
      config_.memory.size() > FeedReserved::kMemoryMax) {
    return absl::ResourceExhaustedError(absl::StrCat(blocks, " blocks, or a description of ",
                                                     config_.memory.size(),
                                                     " bytes, exceed what the step feed carries"));
  }
  if (absl::Status room = room_(blocks); !room.ok()) return room;
  return coming_->Keep(key, blocks).status();
}

int64_t GroupOffers::BlocksOf(int64_t tokens) const {
  return (tokens + config_.tokens_per_block - 1) / config_.tokens_per_block;
}

}  // namespace skein::scheduler
