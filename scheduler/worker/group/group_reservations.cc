#include "scheduler/worker/group/group_reservations.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

GroupReservations::GroupReservations(const Config& config, ComingBlocks* coming,
                                     std::function<void(RequestId)> answered)
    : config_(config), coming_(coming), answered_(std::move(answered)) {}

absl::Status GroupReservations::Start(const Key& key, int64_t tokens, int64_t blocks, TimeUs now,
                                      FeedEffects* effects) {
  SKEIN_CHECK(!Has(key));
  const auto kept = coming_->Keep(key, blocks);
  if (!kept.ok()) return kept.status();
  Reservation& reservation = reservations_[key];
  reservation.number = ++last_number_;
  reservation.blocks = blocks;
  reservation.others.resize(static_cast<size_t>(config_.ranks - 1));
  ends_.Set(key, now + config_.answer_us);
  SendToMembers(config_.ranks,
                FeedReserve{config_.epoch, reservation.number, key.first, key.second, tokens},
                effects);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TransferTarget>> GroupReservations::Ask(const Key& key) {
  Reservation& reservation = reservations_.at(key);
  SKEIN_CHECK(!reservation.given);
  if (absl::Status refused = reservation.refused; !refused.ok()) {
    ends_.Remove(key);
    reservations_.erase(key);
    return refused;
  }
  if (RankToAnswer(reservation).has_value()) {
    return absl::UnavailableError("not all ranks of the bound group have answered yet");
  }
  reservation.given = true;
  ends_.Remove(key);
  std::vector<TransferTarget> others;
  for (auto& target : reservation.others) others.push_back(*std::move(target));
  return others;
}

bool GroupReservations::Given(const Key& key) const {
  const auto it = reservations_.find(key);
  return it != reservations_.end() && it->second.given;
}

std::optional<int> GroupReservations::RankToAnswer(const Reservation& reservation) {
  for (size_t i = 0; i < reservation.others.size(); ++i) {
    if (!reservation.others[i].has_value()) return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

absl::Status GroupReservations::Take(int rank, const FeedReserved& reserved, TimeUs now,
                                     FeedEffects* effects) {
  const Key key(reserved.id, reserved.request_epoch);
  const auto it = reservations_.find(key);
  const bool awaited = it != reservations_.end() && it->second.number == reserved.number &&
                       it->second.refused.ok() && rank > 0 && rank < config_.ranks;
  if (!awaited) return absl::OkStatus();
  Reservation& reservation = it->second;
  if (!reserved.why.ok()) {
    reservation.refused = absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, " of the bound group: ", std::string(reserved.why.message())));
    coming_->Drop(key);
    SendToMembers(config_.ranks, FeedWithdraw{config_.epoch, key.first, key.second}, effects);
  } else if (static_cast<int64_t>(reserved.blocks.size()) != reservation.blocks) {
    return absl::InternalError(absl::StrCat("rank ", rank, " keeps ", reserved.blocks.size(),
                                            " blocks, asked for ", reservation.blocks));
  } else {
    reservation.others[static_cast<size_t>(rank - 1)] = {reserved.blocks, reserved.memory};
    if (RankToAnswer(reservation).has_value()) return absl::OkStatus();
  }
  ends_.Set(key, now + config_.answer_us);  // for Ask to be called
  answered_(key.first);
  return absl::OkStatus();
}

bool GroupReservations::Dismiss(RequestId id, FeedEffects* effects) {
  bool any = false;
  for (auto it = reservations_.lower_bound({id, Epoch{}});
       it != reservations_.end() && it->first.first == id; it = reservations_.erase(it)) {
    any = true;
    const Key& key = it->first;
    ends_.Remove(key);
    coming_->Drop(key);
    if (!it->second.refused.ok()) continue;
    SendToMembers(config_.ranks, FeedWithdraw{config_.epoch, key.first, key.second}, effects);
  }
  return any;
}

// A rank that does not answer is lost; a reservation that nobody asks for any more is given up.
absl::Status GroupReservations::Tick(TimeUs now, FeedEffects* effects) {
  while (const std::optional<Key> key = ends_.TakeDue(now)) {
    const Reservation& reservation = reservations_.at(*key);
    const std::optional<int> silent =
        reservation.refused.ok() ? RankToAnswer(reservation) : std::nullopt;
    if (silent.has_value()) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", *silent, ": it did not answer a reservation in time"));
    }
    Dismiss(key->first, effects);
  }
  return absl::OkStatus();
}

std::vector<GroupReservations::Key> GroupReservations::End() {
  std::vector<Key> given;
  for (const auto& [key, reservation] : std::exchange(reservations_, {})) {
    ends_.Remove(key);
    if (reservation.given) {
      given.push_back(key);
    } else {
      answered_(key.first);
    }
  }
  return given;
}

}  // namespace skein::scheduler
