// BoundGroup's reservations: blocks that all ranks keep for KV that comes from prefill instances.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/group/bound_group.h"

namespace skein::scheduler {

// ---- the lead ----

absl::StatusOr<BoundGroup::Targets> BoundGroup::Reserve(uint64_t formation, const SpecPtr& spec,
                                                        Epoch epoch, TimeUs now) {
  const Key key(spec->id, epoch);
  const auto it = reservations_.find(key);
  const auto waits = absl::UnavailableError("not all ranks of the bound group have answered yet");
  if (it == reservations_.end()) {
    if (!bound() || order_.epoch != formation || !MayJoin()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("formation: this instance leads no bound group of epoch ", formation,
                       " that takes new sequences"));
    }
    if (absl::Status status = CheckFits(*spec); !status.ok()) return status;
    absl::Status status = StartReservation(key, PromptTokens(*spec), now);
    return status.ok() ? waits : status;
  }
  Reservation& reservation = it->second;
  SKEIN_CHECK(!reservation.given);
  if (absl::Status refused = reservation.refused; !refused.ok()) {
    reservation_ends_.Remove(key);
    reservations_.erase(it);
    Drive(now);  // it may be what a release waits for
    return refused;
  }
  if (RankToAnswer(reservation).has_value()) return waits;
  reservation.given = true;
  reservation_ends_.Remove(key);
  Targets targets{KvLayout{size()}, {}};
  for (auto& target : reservation.others) targets.others.push_back(*std::move(target));
  return targets;
}

absl::Status BoundGroup::StartReservation(const Key& key, int64_t tokens, TimeUs now) {
  const int64_t blocks = BlocksOf(tokens);
  if (absl::Status status = planner_->HasRoom(*batch_, blocks); !status.ok()) return status;
  if (absl::Status status = room_(blocks); !status.ok()) return status;
  const auto kept = coming_kv_->Keep(key, blocks);
  if (!kept.ok()) return kept.status();
  Reservation& reservation = reservations_[key];
  reservation.number = ++last_reservation_;
  reservation.blocks = blocks;
  reservation.others.resize(static_cast<size_t>(size() - 1));
  reservation_ends_.Set(key, now + config_.limits.answer_us);
  for (int rank = 1; rank < size(); ++rank) {
    emit_(SendOnFeed{order_.epoch, rank,
                     FeedReserve{order_.epoch, reservation.number, key.first, key.second, tokens}});
  }
  return absl::OkStatus();
}

std::optional<int> BoundGroup::RankToAnswer(const Reservation& reservation) {
  for (size_t i = 0; i < reservation.others.size(); ++i) {
    if (!reservation.others[i].has_value()) return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

void BoundGroup::TakeReserved(int rank, const FeedReserved& reserved, TimeUs now) {
  const Key key(reserved.id, reserved.request_epoch);
  const auto it = reservations_.find(key);
  const bool awaited = it != reservations_.end() && it->second.number == reserved.number &&
                       it->second.refused.ok() && rank > 0 && rank < size();
  if (!awaited) return;  // it was dismissed since
  Reservation& reservation = it->second;
  if (!reserved.why.ok()) {
    reservation.refused = absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, " of the bound group: ", std::string(reserved.why.message())));
    coming_kv_->Drop(key);
    SendWithdraw(key);
  } else if (static_cast<int64_t>(reserved.blocks.size()) != reservation.blocks) {
    return EndOf(absl::InternalError(absl::StrCat("rank ", rank, " keeps ", reserved.blocks.size(),
                                                  " blocks, asked for ", reservation.blocks)),
                 now);
  } else {
    reservation.others[static_cast<size_t>(rank - 1)] = {reserved.blocks, reserved.memory};
    if (RankToAnswer(reservation).has_value()) return;
  }
  reservation_ends_.Set(key, now + config_.limits.answer_us);  // for Reserve to be called
  emit_(GroupAnswered{key.first});
}

bool BoundGroup::Reserved(RequestId id, Epoch epoch) const {
  const auto it = reservations_.find({id, epoch});
  return it != reservations_.end() && it->second.given;
}

void BoundGroup::JoinWithKv(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                            const std::vector<int32_t>& output, BlockTable blocks, TimeUs now) {
  SKEIN_CHECK(Reserved(spec->id, epoch) && !output.empty());
  reservations_.erase({spec->id, epoch});
  const int64_t prompt = PromptTokens(*spec);
  planner_->Add(spec->id, epoch, spec->priority, arrived_us,
                prompt + static_cast<int64_t>(output.size()), prompt);
  Offer({.epoch = epoch,
         .spec = spec,
         .blocks = std::move(blocks),
         .kv_tokens = prompt,
         .output = output});
  Drive(now);
}

void BoundGroup::Dismiss(RequestId id, TimeUs now) {
  const auto first = reservations_.lower_bound({id, Epoch{}});
  if (first == reservations_.end() || first->first.first != id) return;
  Forget(id);
  Drive(now);  // it may be what a release waits for
}

void BoundGroup::Forget(RequestId id) {
  for (auto it = reservations_.lower_bound({id, Epoch{}});
       it != reservations_.end() && it->first.first == id; it = reservations_.erase(it)) {
    reservation_ends_.Remove(it->first);
    coming_kv_->Drop(it->first);
    if (it->second.refused.ok()) SendWithdraw(it->first);
  }
}

// A rank that does not answer is lost; a reservation that nobody asks for any more is given up.
void BoundGroup::TickReservations(TimeUs now) {
  while (bound() && over_.ok()) {
    const std::optional<Key> key = reservation_ends_.TakeDue(now);
    if (!key.has_value()) return;
    const Reservation& reservation = reservations_.at(*key);
    const std::optional<int> silent =
        reservation.refused.ok() ? RankToAnswer(reservation) : std::nullopt;
    if (!silent.has_value()) {
      Forget(key->first);
      continue;
    }
    return EndOf(absl::DeadlineExceededError(
                     absl::StrCat("rank ", *silent, ": it did not answer a reservation in time")),
                 now);
  }
}

// ---- members ----

void BoundGroup::TakeReserve(const FeedReserve& reserve) {
  FeedReserved answer = AnswerTo(reserve);
  const Key key(reserve.id, reserve.request_epoch);
  const GrantId grant = answer.why.ok() ? coming_kv_->at(key).grant : GrantId{};
  emit_(SendOnFeed{order_.epoch, 0, std::move(answer), grant});
}

FeedReserved BoundGroup::AnswerTo(const FeedReserve& reserve) {
  FeedReserved answer{.epoch = order_.epoch,
                      .number = reserve.number,
                      .id = reserve.id,
                      .request_epoch = reserve.request_epoch};
  const Key key(reserve.id, reserve.request_epoch);
  const int64_t blocks = BlocksOf(reserve.tokens);
  if (coming_kv_->Has(key) || blocks < 1) {
    answer.why = absl::InvalidArgumentError("the blocks are kept already, or none are asked for");
  } else if (blocks > static_cast<int64_t>(FeedReserved::kBlocksMax) ||
             config_.memory.size() > FeedReserved::kMemoryMax) {
    answer.why = absl::ResourceExhaustedError(
        absl::StrCat(blocks, " blocks, or a description of ", config_.memory.size(),
                     " bytes, exceed what the step feed carries"));
  } else {
    answer.why = room_(blocks);
  }
  if (!answer.why.ok()) return answer;
  const auto kept = coming_kv_->Keep(key, blocks);
  answer.why = kept.status();
  if (!kept.ok()) return answer;
  answer.blocks = *kept->blocks;
  answer.memory = config_.memory;
  return answer;
}

// The blocks with the KV of an offer; none: null.
absl::StatusOr<BlockTable> BoundGroup::TakeWhole(const FeedOffer& offer) {
  if (offer.kv_tokens == 0) return BlockTable();
  const Key key(offer.id, offer.request_epoch);
  const bool fits =
      coming_kv_->Has(key) &&
      static_cast<int64_t>(coming_kv_->at(key).blocks->size()) == BlocksOf(offer.kv_tokens);
  if (fits) return coming_kv_->TakeWhole(key);
  return absl::InternalError(
      absl::StrCat("request ", ToString(offer.id), " is offered with KV that is not here"));
}

// ---- both ----

// The epoch is over. Returns what Reserve had given.
std::vector<BoundGroup::Key> BoundGroup::EndReservations() {
  coming_kv_->DropAll();
  std::vector<Key> given;
  for (const auto& [key, reservation] : std::exchange(reservations_, {})) {
    reservation_ends_.Remove(key);
    if (reservation.given) {
      given.push_back(key);
    } else {
      emit_(GroupAnswered{key.first});
    }
  }
  return given;
}

}  // namespace skein::scheduler
