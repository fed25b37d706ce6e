#include "scheduler/worker/group/testing/bound_node.h"

#include <gtest/gtest.h>

namespace skein::scheduler::testing {
namespace {

constexpr int32_t kKvHeads = 8;
constexpr TimeUs kKeepUs = 50'000, kKeepForOwnUs = 150'000;

BoundGroupConfig ConfigOf(uint32_t seed) {
  return {.limits = {.answer_us = 200'000, .step_us = 400'000},
          .batch = {.max_batch_tokens = 16,
                    .max_batch_sequences = 4,
                    .max_slice_tokens = 8,
                    .min_slice_tokens = 4},
          .kv_heads = kKvHeads,
          .block_tokens = kNodeBlockTokens,
          .shift_tokens = seed % 2 == 0 ? 6 : 1000,
          .own_pause_us = seed % 5 == 0 ? 3'000 : 10 * kSecondUs};
}

}  // namespace

BoundNode::BoundNode(int size, uint32_t seed) : random_(seed), ranks_(static_cast<size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) {
    At(rank).group = std::make_unique<BoundGroup>(
        ConfigOf(seed), &At(rank).pool, &At(rank).coming,
        [this, rank](int64_t blocks) {
          return blocks <= At(rank).pool.Counts().free ? absl::OkStatus()
                                                       : absl::ResourceExhaustedError("full");
        },
        [this, rank](BoundEffect effect) { std::visit([&](auto& e) { On(rank, e); }, effect); });
  }
}

void BoundNode::Move() {
  now_ += Between(0, 200);
  const int rank = static_cast<int>(Between(0, Size() - 1));
  if (Between(0, 7) == 0) MoveKv();
  switch (Between(0, 7)) {
    case 0:
      return Order();
    case 1:
    case 2:
      return Deliver(rank);
    case 3:
    case 4:
      return EndStep(rank);
    case 5:
      return StartStep(rank);
    case 6:
      return Tick(rank);
    default:
      if (Between(0, 3) == 0) Arrive(rank);
  }
}

void BoundNode::Order() {
  if (!orders_) return;
  switch (Between(0, 5)) {
    case 0:
      return PrepareAll();
    case 1:
    case 2:
      return CommitIfAllArePrepared();
    default:
      if (Between(0, 80) == 0) EndIt(Between(0, 1) == 0 ? Switch::kHard : Switch::kSequential);
  }
}

void BoundNode::PrepareAll() {
  const int64_t patience = EndsOwnFirst(Size() - 1) ? 30 : 3;
  if (!AllAreAlone() || (epoch_ > 0 && Between(0, patience) != 0)) return;
  ++epoch_;
  told_.clear();
  own_ = static_cast<OwnSequences>(Between(0, 3));
  for (int rank = 0; rank < Size(); ++rank) {
    Act(rank, [&](BoundGroup& group) {
      group.Prepare({.epoch = epoch_,
                     .generation = 1,
                     .size = Size(),
                     .keep_us = EndsOwnFirst(rank) ? kKeepForOwnUs : kKeepUs,
                     .shift = ordered_shift_,
                     .own = own_},
                    now_);
    });
  }
}

void BoundNode::CommitIfAllArePrepared() {
  if (static_cast<int>(told_.size()) < Size()) return;
  for (const auto& [rank, told] : told_) {
    if (told.epoch != epoch_ || told.phase != FormationTold::Phase::kPrepared) return;
  }
  ++counts_.commits[own_];
  Act(0, [&](BoundGroup& group) { group.Commit({epoch_}, now_); });
}

void BoundNode::EndIt(Switch how) {
  Act(0, [&](BoundGroup& group) {
    group.End({epoch_, how, absl::CancelledError("released")}, now_);
  });
}

void BoundNode::Arrive(int rank) {
  if (!arrivals_) return;
  if (Between(0, 2) > 0) return NewRequest();
  if (At(rank).own.size() > 2 || At(rank).pool.Counts().free < 3) return;
  if (!At(rank).group->TakesOwn()) return;
  At(rank).own.push_back({*At(rank).pool.Allocate(1), 1, Between(2, 9)});
}

void BoundNode::NewRequest() {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = {7, ++serial_};
  for (int64_t left = Between(1, 30); left > 0; --left) {
    spec->prompt.push_back(static_cast<int32_t>(Between(0, kNodeVocabulary - 1)));
  }
  spec->max_tokens = Between(1, 12);
  spec->priority = static_cast<int32_t>(Between(0, 1));
  requests_[serial_].spec = std::move(spec);
  requests_[serial_].kv_comes = Between(0, 3) > 0;
}

void BoundNode::Kill(int rank) {
  At(rank).dead = true;
  broken_.insert(epoch_);
  for (int other = 0; other < Size(); ++other) {
    if (other == rank) continue;
    Act(other,
        [&](BoundGroup& group) { group.FeedLost(rank, absl::UnavailableError("it died"), now_); });
  }
}

void BoundNode::On(int, const CloseFeed& effect) {
  if (effect.broken) broken_.insert(effect.epoch);
}

void BoundNode::On(int rank, SendOnFeed& effect) {
  if (effect.grant != GrantId{}) {
    std::get<FeedReserved>(effect.message).memory = std::to_string(effect.grant.value);
  }
  At(effect.rank).inbox.emplace_back(rank, Encode(effect.message));
}

void BoundNode::On(int rank, const TellFormation& effect) {
  told_[rank] = effect.told;
  if (effect.told.phase != FormationTold::Phase::kPrepared || !EndsOwnFirst(rank)) return;
  EXPECT_TRUE(At(rank).own.empty() && !At(rank).busy) << "rank " << rank << " is not empty";
}

void BoundNode::On(int rank, const FormationOver& effect) {
  ++counts_.overs;
  if (rank != 0) return;
  for (const auto& [id, epoch] : effect.left) requests_.at(id.serial).joined = false;
  for (const auto& [id, epoch] : effect.coming) {
    GiveUp(&requests_.at(id.serial));
    ++counts_.cut_off;
  }
}

void BoundNode::Deliver(int rank) {
  for (int64_t count = Between(1, 6); count > 0; --count) DeliverOne(rank);
}

void BoundNode::DeliverOne(int rank) {
  if (Frozen(rank) || At(rank).inbox.empty()) return;
  const auto [from, bytes] = At(rank).inbox.front();
  At(rank).inbox.pop_front();
  const absl::StatusOr<FeedMessage> message = DecodeFeed(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(message.ok()) << message.status();
  if (bytes.size() > 400) ADD_FAILURE() << "a feed message of " << bytes.size() << " bytes";
  Act(rank, [&, from = from](BoundGroup& group) { group.FeedArrived(from, *message, now_); });
}

void BoundNode::Tick(int rank) {
  Open(rank);
  Act(rank, [&](BoundGroup& group) { group.Tick(now_); });
}

void BoundNode::Open(int rank) {
  const auto opening = opening_.extract(rank);
  if (opening.empty()) return;
  const bool there = Between(0, 9) != 0;
  Act(rank, [&](BoundGroup& group) {
    group.FeedOpened(opening.mapped(),
                     there ? absl::StatusOr<int>(rank)
                           : absl::UnavailableError("its communicators are being made"),
                     now_);
  });
}

}  // namespace skein::scheduler::testing
