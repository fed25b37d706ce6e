#include "scheduler/orchestrator/decode/decode_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void DecodePlacement::RemoveUnopened(InstanceId member, PlanSequence first) {
  const auto plans = unopened_.find(member);
  if (plans == unopened_.end()) return;
  plans->second.erase(first);
  if (plans->second.empty()) {
    unopened_.erase(plans);
  } else if (first < *plans->second.begin()) {
    Unblock(*plans->second.begin());
  }
}

bool DecodePlacement::MustWait(InstanceId member, PlanSequence first) const {
  const auto plans = unopened_.find(member);
  return plans != unopened_.end() && *plans->second.begin() < first;
}

void DecodePlacement::Wait(const std::string& model, Place place, RequestId request,
                           DecodeClaim claim) {
  const bool added = lines_[model].all.emplace(place, Waiter{request, std::move(claim), {}}).second;
  SKEIN_CHECK_MSG(added, "a place in the line is given once");
}

void DecodePlacement::Leave(const std::string& model, Place place) {
  const auto line = lines_.find(model);
  if (line == lines_.end() || line->second.all.count(place) == 0) return;
  SetAsking(model, place, false);
  line->second.all.erase(place);
  if (line->second.all.empty()) lines_.erase(line);
  NoteChange(model);
}

void DecodePlacement::Serve(const std::string& model, Place place, int64_t tokens) {
  Line& line = lines_.at(model);
  line.ready.Serve(OwnerOf(place, line.all.at(place)), place, tokens);
  Leave(model, place);
}

size_t DecodePlacement::TenantsReady(const std::string& model, int32_t priority) const {
  const auto line = lines_.find(model);
  return line == lines_.end() ? 0 : line->second.ready.TenantsAt(priority);
}

void DecodePlacement::MakeReady(Line& line, Place place) {
  const Waiter& waiter = line.all.at(place);
  if (line.ready.Has(OwnerOf(place, waiter), place)) return;
  line.ready.Add(OwnerOf(place, waiter), place, waiter.claim.latest_us);
}

void DecodePlacement::SetAsking(const std::string& model, Place place, bool asks) {
  const auto line = lines_.find(model);
  if (line == lines_.end()) return;
  const auto waiter = line->second.all.find(place);
  if (waiter == line->second.all.end()) return;
  if (!asks) {
    line->second.ready.Remove(OwnerOf(place, waiter->second), place);
    blocked_.erase(std::exchange(waiter->second.blocked, {}));
  } else if (waiter->second.blocked == PlanSequence{}) {
    MakeReady(line->second, place);
    NoteChange(model);
  }
}

std::optional<RequestId> DecodePlacement::FirstReady(const std::string& model, TimeUs now) {
  const auto line = lines_.find(model);
  if (line == lines_.end()) return std::nullopt;
  const std::optional<Place> first = line->second.ready.First(now);
  if (!first.has_value()) return std::nullopt;
  return line->second.all.at(*first).request;
}

void DecodePlacement::Block(const std::string& model, Place place, PlanSequence first) {
  Line& line = lines_.at(model);
  Waiter& waiter = line.all.at(place);
  SKEIN_CHECK(line.ready.Remove(OwnerOf(place, waiter), place));
  waiter.blocked = first;
  blocked_[first] = {model, place};
}

// An instance's oldest plan is this one now.
void DecodePlacement::Unblock(PlanSequence first) {
  const auto found = blocked_.extract(first);
  if (found.empty()) return;
  const auto& [model, place] = found.mapped();
  Line& line = lines_.at(model);
  line.all.at(place).blocked = {};
  MakeReady(line, place);
  NoteChange(model);
}

DecodePlacement::Standing DecodePlacement::StandingOf(const std::string& model, Place place,
                                                      RequestId request) const {
  const auto line = lines_.find(model);
  if (line == lines_.end()) return Standing::kAbsent;
  const auto waiter = line->second.all.find(place);
  if (waiter == line->second.all.end() || waiter->second.request != request) {
    return Standing::kAbsent;
  }
  if (line->second.ready.Has(OwnerOf(place, waiter->second), place)) return Standing::kReady;
  return waiter->second.blocked == PlanSequence{} ? Standing::kNotAsking : Standing::kBlocked;
}

size_t DecodePlacement::WaitingOf(const std::string& model) const {
  const auto line = lines_.find(model);
  return line == lines_.end() ? 0 : line->second.all.size();
}

size_t DecodePlacement::waiting() const {
  size_t count = 0;
  for (const auto& [model, line] : lines_) count += line.all.size();
  return count;
}

std::vector<std::string> DecodePlacement::TakeChanged() {
  std::vector<std::string> models;
  for (const std::string& model : std::exchange(changed_, {})) {
    if (FirstReady(model).has_value()) models.push_back(model);
  }
  return models;
}

absl::Status DecodePlacement::CheckInvariants() const {
  for (const auto& [model, line] : lines_) {
    if (line.all.empty()) {
      return absl::InternalError(
          absl::StrCat("DecodePlacement: the empty line of model ", model, " was kept"));
    }
    if (absl::Status status = line.ready.CheckInvariants(); !status.ok()) return status;
    size_t ready = 0;
    for (const auto& [place, waiter] : line.all) {
      const bool is_ready = line.ready.Has(OwnerOf(place, waiter), place);
      ready += is_ready ? 1 : 0;
      if (is_ready && waiter.blocked != PlanSequence{}) {
        return absl::InternalError("DecodePlacement: a request that is blocked is marked ready");
      }
      if (place.number > last_number_) {
        return absl::InternalError(
            "DecodePlacement: a waiting request has a number that was not issued");
      }
      if (waiter.blocked == PlanSequence{}) continue;
      const auto known = blocked_.find(waiter.blocked);
      if (known != blocked_.end() && known->second == std::pair(model, place)) continue;
      return absl::InternalError(
          "DecodePlacement: no plan is listed as blocking a blocked request");
    }
    if (ready != line.ready.size()) {
      return absl::InternalError("DecodePlacement: a request that does not wait is marked ready");
    }
  }
  for (const auto& [instance, plans] : unopened_) {
    if (!plans.empty()) continue;
    return absl::InternalError(absl::StrCat("DecodePlacement: instance ", instance.value,
                                            " is listed without an unopened plan"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
