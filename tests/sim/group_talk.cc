#include "tests/sim/group_talk.h"

#include <algorithm>

#include "scheduler/vocabulary/check.h"

namespace skein::sim {
namespace {

absl::Status NotOfASimulatedStep() {
  return absl::UnimplementedError("an emulated step of a group gathers, and calls nothing else");
}

}  // namespace

class GroupTalk::Talker final : public engine::Communicator {
 public:
  Talker(GroupTalk* talk, int rank) : talk_(talk), rank_(rank) {}

  GroupTalk* talk() const { return talk_; }
  void Play() { plays_ = true; }

  int Rank() const override { return rank_; }
  int Size() const override { return static_cast<int>(talk_->calls_.size()); }
  void Tag(uint64_t tag) override { tag_ = tag; }
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         engine::CommDeadline) override {
    if (!plays_) {
      talk_->calls_[static_cast<size_t>(rank_)].push_back({tag_, {send.begin(), send.end()}});
      std::fill(receive.begin(), receive.end(), std::byte{0});
      return absl::OkStatus();
    }
    const size_t call = next_++;
    for (size_t from = 0; from < talk_->calls_.size(); ++from) {
      const std::vector<Call>& calls = talk_->calls_[from];
      const bool fits =
          call < calls.size() && calls[call].tag == tag_ && calls[call].sent.size() == send.size();
      if (!fits) return absl::InternalError("the ranks' calls differ");
      std::copy(calls[call].sent.begin(), calls[call].sent.end(),
                receive.begin() + static_cast<std::ptrdiff_t>(from * send.size()));
    }
    return absl::OkStatus();
  }

  absl::Status AllReduce(void*, int64_t, engine::DType, engine::CommDeadline) override {
    return NotOfASimulatedStep();
  }
  absl::Status ReduceScatter(const void*, void*, int64_t, engine::DType,
                             engine::CommDeadline) override {
    return NotOfASimulatedStep();
  }
  absl::Status AllToAll(std::span<const std::span<const std::byte>>,
                        std::span<const std::span<std::byte>>, engine::CommDeadline) override {
    return NotOfASimulatedStep();
  }
  absl::Status SendRecv(std::span<const std::byte>, int, std::span<std::byte>, int,
                        engine::CommDeadline) override {
    return NotOfASimulatedStep();
  }
  absl::Status Broadcast(std::span<std::byte>, int, engine::CommDeadline) override {
    return NotOfASimulatedStep();
  }
  void Abort(const absl::Status&) override {}

 private:
  GroupTalk* const talk_;
  const int rank_;
  uint64_t tag_ = 0;
  bool plays_ = false;
  size_t next_ = 0;
};

GroupTalk::GroupTalk(int ranks, std::function<void(int rank)> run)
    : run_(std::move(run)), calls_(static_cast<size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<Talker>(this, rank));
}
GroupTalk::~GroupTalk() = default;

engine::Communicator* GroupTalk::Of(int rank) { return ranks_[static_cast<size_t>(rank)].get(); }

void GroupTalk::ReachFrom(int rank) {
  while (reached_ < static_cast<int>(ranks_.size()) && reached_ == rank) {
    ++reached_;
    run_(rank++);
    rank = std::max(rank, reached_);
  }
}

absl::Status TalkingEngine::StepTogether(const engine::GroupPart& part,
                                         std::span<const engine::SequenceStep> sequences,
                                         engine::StepProgress* progress,
                                         std::vector<engine::SequenceResult>* results) {
  auto* const rank = dynamic_cast<GroupTalk::Talker*>(part.all);
  SKEIN_CHECK(rank != nullptr);
  (void)engine_.StepTogether(part, sequences, nullptr, results);  // the second run tells
  rank->talk()->ReachFrom(part.all->Rank() + 1);
  rank->Play();
  return engine_.StepTogether(part, sequences, progress, results);
}

}  // namespace skein::sim
