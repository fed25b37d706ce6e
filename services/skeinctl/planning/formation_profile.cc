#include "services/skeinctl/planning/formation_profile.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/skeinctl/planning/decode_probe.h"
#include "services/skeinctl/terminal/progress.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services {
namespace {

using Request = v1::ChangeFormationRequest;

constexpr auto kReadyMax = std::chrono::seconds(30);   // for communicators that are being made
constexpr auto kSwitchMax = std::chrono::seconds(90);  // a release waits for a minute at most
constexpr auto kGlance = std::chrono::milliseconds(100);
constexpr int32_t kSizeMax = 8;
// More tokens than any step has: all run in TP.
constexpr uint64_t kNever = 1'000'000'000;

// How all steps of a bound group are to run: in full TP, or in a base.
struct StepShape {
  bool in_tp = true;
  int32_t base_tp = 1;
};
std::vector<StepShape> ShapesOf(int32_t size) {
  std::vector<StepShape> shapes = {StepShape{}};
  for (const int32_t tp : BaseTpsOf(size)) shapes.push_back({.in_tp = false, .base_tp = tp});
  return shapes;
}

struct Group {
  std::string name;
  int64_t members = 0;
};

absl::Status Stopped() { return absl::CancelledError("interrupted"); }

std::vector<v1::GroupStatus> DecodeGroupsOf(const v1::ListGroupsResponse& response,
                                            const std::string& model) {
  std::vector<v1::GroupStatus> groups;
  for (const v1::GroupStatus& group : response.groups()) {
    if (group.role() == v1::ROLE_DECODE && group.model() == model) groups.push_back(group);
  }
  return groups;
}

absl::Status CheckUnpinned(const v1::GroupStatus& group) {
  for (const v1::GroupStatus::Formation& formation : group.formations()) {
    if (!formation.pinned()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("group ", group.name(), " is pinned by an operator; skeinctl unpin --group ",
                     group.name(), " lets its formations be measured"));
  }
  return absl::OkStatus();
}

// The groups while they are measured: pinned. Released and unpinned at the end.
class PinnedGroups {
 public:
  explicit PinnedGroups(ClusterClient* client) : client_(client) {}
  PinnedGroups(const PinnedGroups&) = delete;
  PinnedGroups& operator=(const PinnedGroups&) = delete;

  absl::Status Take(const std::string& model);
  // Each of `size` members, with all steps in this shape. Those that have fewer members work alone.
  absl::Status Bind(int32_t size, const StepShape& shape);
  absl::Status Release() { return ForEach(Request::ACT_RELEASE, 0, {}); }
  absl::Status GiveBack();

  int64_t Instances() const;
  int64_t Largest() const;
  int64_t Targets(int32_t size) const;

 private:
  absl::Status ForEach(Request::Act act, int32_t size, const StepShape& shape);

  ClusterClient* const client_;
  std::vector<Group> groups_;
  bool touched_ = false;
};

absl::Status PinnedGroups::Take(const std::string& model) {
  const auto end = std::chrono::steady_clock::now() + kReadyMax;
  for (bool first = true;; first = false) {
    const auto response = client_->Groups();
    if (!response.ok()) return response.status();
    std::vector<Group> groups;
    std::string waits;
    for (const v1::GroupStatus& group : DecodeGroupsOf(*response, model)) {
      if (absl::Status unpinned = CheckUnpinned(group); !unpinned.ok()) return unpinned;
      const auto members = static_cast<uint64_t>(group.members_size());
      if (members > 1 && (group.generation() == 0 || group.ready() < members)) {
        waits = absl::StrCat("group ", group.name(), ": ", group.ready(), " of ", members,
                             " instances have made its communicators");
      }
      groups.push_back({group.name(), group.members_size()});
    }
    if (waits.empty()) {
      groups_ = std::move(groups);
      if (Largest() >= 2) return absl::OkStatus();
      groups_.clear();
      const char none[] = "no decode group of the model has two instances";
      return first ? absl::NotFoundError(none)
                   : absl::AbortedError(absl::StrCat(none, " any more"));
    }
    if (std::chrono::steady_clock::now() >= end) return absl::FailedPreconditionError(waits);
    WaitUnlessStopped(kGlance);
    if (StopSignalled()) return Stopped();
  }
}

int64_t PinnedGroups::Instances() const { return Targets(std::numeric_limits<int32_t>::max()); }

int64_t PinnedGroups::Largest() const {
  int64_t largest = 0;
  for (const Group& group : groups_) largest = std::max(largest, group.members);
  return largest;
}

int64_t PinnedGroups::Targets(int32_t size) const {
  int64_t targets = 0;
  for (const Group& group : groups_) targets += group.members / size + group.members % size;
  return targets;
}

absl::Status PinnedGroups::ForEach(Request::Act act, int32_t size, const StepShape& shape) {
  touched_ = true;
  absl::Status all;
  for (const Group& group : groups_) {
    if (group.members < 2 || group.members < size) continue;
    Request request;
    request.set_act(act);
    request.set_group(group.name);
    if (act == Request::ACT_BIND) {
      request.set_size(static_cast<uint32_t>(size));
      request.set_shift_tokens(shape.in_tp ? kNever : 0);
      request.set_shift_tp(static_cast<uint32_t>(shape.base_tp));
    }
    all.Update(client_->ChangeFormation(request, kSwitchMax).status());
  }
  return all;
}

absl::Status PinnedGroups::Bind(int32_t size, const StepShape& shape) {
  // What is bound at this size already would keep its shape.
  if (absl::Status released = Release(); !released.ok()) return released;
  return ForEach(Request::ACT_BIND, size, shape);
}

absl::Status PinnedGroups::GiveBack() {
  if (!touched_) return absl::OkStatus();
  absl::Status done = Release();
  done.Update(ForEach(Request::ACT_UNPIN, 0, {}));  // whatever came of the release
  if (done.ok()) return done;
  std::string how;
  for (const Group& group : groups_) {
    if (group.members > 1) absl::StrAppend(&how, "; skeinctl unpin --group ", group.name);
  }
  return absl::Status(done.code(),
                      absl::StrCat("groups were not given back: ", done.message(), how));
}

class Measurement {
 public:
  Measurement(ClusterClient* client, const FormationProfileOptions& options)
      : client_(client),
        options_(options),
        groups_(client),
        probe_(client, options.model, options.tokens_max) {}

  absl::StatusOr<FormationMeasurement> Run() {
    const absl::Status taken = groups_.Take(options_.model);
    if (!taken.ok()) return taken;
    auto measured = Measured();
    // Only where there are no groups at first is there nothing to measure; now they have gone.
    if (!absl::IsNotFound(measured.status())) return measured;
    return absl::AbortedError(measured.status().message());
  }

 private:
  // The groups are given back, whatever comes.
  absl::StatusOr<FormationMeasurement> Measured() {
    absl::Status status = probe_.AwaitIdle();
    if (status.ok()) status = Rounds();
    absl::Status given_back = groups_.GiveBack();
    if (!given_back.ok() && !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), "; and ",
                                                      std::string(given_back.message())));
    }
    status.Update(given_back);
    if (!status.ok()) return status;
    FormationMeasurement measured;
    measured.points = DecodeMedians(samples_);
    measured.findings = FindFormations(measured.points, Sizes(), groups_.Instances());
    for (const std::string& note : notes_) absl::StrAppend(&measured.notes, note, "\n");
    return measured;
  }

  std::vector<int32_t> Sizes() const {
    std::vector<int32_t> sizes;
    for (int32_t size = 2; size <= std::min<int64_t>(kSizeMax, groups_.Largest()); size *= 2) {
      sizes.push_back(size);
    }
    return sizes;
  }

  absl::Status Rounds() {
    int64_t each = 1;  // alone
    for (const int32_t size : Sizes()) each += static_cast<int64_t>(ShapesOf(size).size());
    Progress progress("formations", options_.rounds * each);
    for (int64_t round = 1; round <= options_.rounds; ++round) {
      const std::string in_round = absl::StrFormat("round %d of %d, ", round, options_.rounds);
      progress.Step(in_round + "each instance alone");
      absl::Status status = groups_.Release();
      if (status.ok()) status = Streams("alone", 1, /*base_tp=*/1, {1, groups_.Instances()});
      if (!status.ok()) return status;
      for (const int32_t size : Sizes()) {
        const std::vector<StepShape> shapes = ShapesOf(size);
        for (size_t i = 0; i < shapes.size(); ++i) {
          // Each is the first in turn.
          const StepShape& shape = shapes[(i + static_cast<size_t>(round) - 1) % shapes.size()];
          const std::string what = absl::StrFormat(
              "bound(%d) in %s", size, shape.in_tp ? "TP" : BaseText(size, shape.base_tp));
          progress.Step(in_round + what);
          if (absl::Status s = BoundStreams(size, shape, what); !s.ok()) return s;
        }
      }
    }
    return absl::OkStatus();
  }

  // A size that cannot be bound is not measured; the others are.
  absl::Status BoundStreams(int32_t size, const StepShape& shape, const std::string& what) {
    if (StopSignalled()) return Stopped();
    const absl::Status bound = groups_.Bind(size, shape);
    if (absl::IsUnavailable(bound) || absl::IsDeadlineExceeded(bound)) return bound;
    if (!bound.ok()) {
      notes_.insert(absl::StrCat(what, ": not measured: ", std::string(bound.message())));
      return absl::OkStatus();
    }
    return Streams(what, size, shape.base_tp,
                   StreamCounts(groups_.Targets(size), groups_.Instances(), options_.streams));
  }

  absl::Status Streams(const std::string& what, int32_t size, int32_t base_tp,
                       const std::vector<int64_t>& counts) {
    const auto response = client_->Groups();
    if (!response.ok()) return response.status();
    auto targets = DecodeTargets(*response, options_.model);
    if (absl::IsFailedPrecondition(targets.status())) {  // the group is being released
      notes_.insert(
          absl::StrCat(what, ": not measured: ", std::string(targets.status().message())));
      return absl::OkStatus();
    }
    if (!targets.ok()) return targets.status();
    for (DecodeTarget& target : *targets) target.base_tp = base_tp;
    for (const int64_t streams : counts) {
      if (StopSignalled()) return Stopped();
      auto samples = probe_.Run(*targets, size, streams, options_.steps);
      if (samples.ok()) {
        samples_.insert(samples_.end(), samples->begin(), samples->end());
        continue;
      }
      const bool lacks_room = absl::IsResourceExhausted(samples.status());
      if (!lacks_room && !absl::IsFailedPrecondition(samples.status())) return samples.status();
      notes_.insert(absl::StrFormat("%s, %d streams: not measured: %s", what, streams,
                                    std::string(samples.status().message())));
      if (lacks_room) return absl::OkStatus();  // more streams need more
    }
    return absl::OkStatus();
  }

  ClusterClient* const client_;
  const FormationProfileOptions options_;
  PinnedGroups groups_;
  DecodeProbe probe_;
  std::vector<DecodeSample> samples_;
  std::set<std::string> notes_;
};

}  // namespace

absl::StatusOr<FormationMeasurement> MeasureFormations(ClusterClient* client,
                                                       const FormationProfileOptions& options) {
  CatchStopSignals();
  return Measurement(client, options).Run();
}

}  // namespace skein::services
