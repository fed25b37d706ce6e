#include "services/worker/group/shared_weights.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::services {
namespace {

engine::SharedMode ModeOf(scheduler::SharedMode mode) {
  return mode == scheduler::SharedMode::kCas ? engine::SharedMode::kCompute
                                             : engine::SharedMode::kWeights;
}

// An offer as it travels: words, of which the names of memory are in hexadecimal digits.
struct OfferMessage {
  uint64_t epoch = 0;
  bool asks = false;  // for the receiver's offer
  engine::SharingOffer offer;
};

std::string Encode(const OfferMessage& message) {
  const engine::SharingOffer& offer = message.offer;
  return absl::StrCat(message.epoch, " ", message.asks ? 1 : 0, " ", offer.rank, " ", offer.ranks,
                      " ", offer.model_hash, " ", absl::BytesToHexString(offer.process), " ",
                      absl::BytesToHexString(offer.layers), " ",
                      absl::BytesToHexString(offer.calls), " ", absl::BytesToHexString(offer.wire));
}

// Nullopt: it is malformed.
std::optional<OfferMessage> Decode(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  OfferMessage message;
  int asks = 0;
  if (words.size() != 9 || !absl::SimpleAtoi(words[0], &message.epoch) ||
      !absl::SimpleAtoi(words[1], &asks) || !absl::SimpleAtoi(words[2], &message.offer.rank) ||
      !absl::SimpleAtoi(words[3], &message.offer.ranks)) {
    return std::nullopt;
  }
  message.asks = asks != 0;
  message.offer.model_hash = words[4];
  message.offer.process = absl::HexStringToBytes(words[5]);
  message.offer.layers = absl::HexStringToBytes(words[6]);
  message.offer.calls = absl::HexStringToBytes(words[7]);
  message.offer.wire = absl::HexStringToBytes(words[8]);
  return message;
}

}  // namespace

SharedWeights::SharedWeights(std::shared_ptr<engine::WeightSharing> sharing, Peers peers)
    : sharing_(std::move(sharing)), peers_(std::move(peers)), loop_(kInboxMax) {
  loop_.Start(
      "sharing", [] { return INT64_MAX; }, [] {});
}

void SharedWeights::Begin(const scheduler::PrepareShared& call) {
  loop_.Post([this, call, rank = peers_.open(call.members)] { Prepare(call, rank); });
}

void SharedWeights::Begin(const scheduler::EnterShared& call) {
  loop_.Post([this, call] {
    const absl::Status status = Enter(call);
    peers_.done({call.call, status, status.ok() ? sharing_->TakeExtraKv() : BlockRange{}});
  });
}

// Since it entered it serves both.
void SharedWeights::Begin(const scheduler::ReadyMode& call) {
  loop_.Post([this, call] { Answer(call.call, absl::OkStatus()); });
}

void SharedWeights::Begin(const scheduler::SetMode& call) {
  loop_.Post([this, call] { Answer(call.call, sharing_->SwitchTo(++orders_, ModeOf(call.mode))); });
}

void SharedWeights::Begin(const scheduler::LeaveShared& call) {
  loop_.Post([this, call] { Answer(call.call, Leave(call)); });
}

void SharedWeights::Arrived(int rank, const std::string& message) {
  loop_.Post([this, rank, message] { Take(rank, message); });
}

void SharedWeights::Lost(int rank, const absl::Status& why) {
  loop_.Post([this, rank, why] {
    if (!meeting_.has_value() || meeting_->call == 0) return;
    const uint64_t call = meeting_->call;
    meeting_.reset();
    Answer(call, absl::UnavailableError(absl::StrCat("rank ", rank, ": ", why.message())));
  });
}

void SharedWeights::Prepare(const scheduler::PrepareShared& call, const absl::StatusOr<int>& rank) {
  meeting_.reset();  // the core has given it up
  if (!rank.ok()) return Answer(call.call, rank.status());
  absl::StatusOr<engine::SharingOffer> offer = sharing_->Offer(*rank, call.members.size);
  if (!offer.ok()) return Answer(call.call, offer.status());
  meeting_.emplace(Meeting{});
  meeting_->call = call.call;
  meeting_->epoch = call.epoch;
  meeting_->rank = *rank;
  meeting_->offers.resize(static_cast<size_t>(call.members.size));
  meeting_->offers[static_cast<size_t>(*rank)] = *std::move(offer);
  for (int other = 0; other < call.members.size; ++other) {
    if (other != *rank) TellOffer(other, /*asks=*/true);
  }
}

void SharedWeights::TellOffer(int rank, bool asks) const {
  const engine::SharingOffer& own = *meeting_->offers[static_cast<size_t>(meeting_->rank)];
  peers_.send(rank, Encode({.epoch = meeting_->epoch, .asks = asks, .offer = own}));
}

void SharedWeights::Take(int rank, const std::string& message) {
  std::optional<OfferMessage> told = Decode(message);
  // One of another epoch is late, or early: then this instance asks when it prepares.
  if (!told.has_value() || !meeting_.has_value() || told->epoch != meeting_->epoch) return;
  if (rank < 0 || rank >= static_cast<int>(meeting_->offers.size()) || rank == meeting_->rank) {
    return;
  }
  meeting_->offers[static_cast<size_t>(rank)] = std::move(told->offer);
  if (told->asks) TellOffer(rank, /*asks=*/false);
  EndIfAllHaveOffered();
}

void SharedWeights::EndIfAllHaveOffered() {
  if (meeting_->call == 0) return;
  for (const auto& offer : meeting_->offers) {
    if (!offer.has_value()) return;
  }
  Answer(std::exchange(meeting_->call, 0), absl::OkStatus());
}

absl::Status SharedWeights::Enter(const scheduler::EnterShared& call) {
  if (!meeting_.has_value() || meeting_->epoch != call.epoch || meeting_->call != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch: ", call.epoch, " is not prepared by the engine"));
  }
  std::vector<engine::SharingOffer> offers;
  offers.reserve(meeting_->offers.size());
  for (std::optional<engine::SharingOffer>& offer : meeting_->offers) {
    offers.push_back(*std::move(offer));
  }
  meeting_.reset();
  return sharing_->Enter(++orders_, offers, ModeOf(call.mode));
}

// The memory of the blocks is that of the weights which come.
absl::Status SharedWeights::Leave(const scheduler::LeaveShared& call) {
  const absl::Status given = sharing_->GiveExtraKv(call.moves);
  return given.ok() ? sharing_->Leave(++orders_) : given;
}

}  // namespace skein::services
