#include "scheduler/orchestrator/request_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"

namespace skein::scheduler::orchestrator {

Request& RequestTable::Add(SpecPtr spec, CallId submit, TimeUs now, TimeUs deadline_us) {
  const uint64_t number = ++submitted_;
  Request& request = by_number_.try_emplace(by_number_.end(), number)->second;
  request.number = number;
  request.spec = std::move(spec);
  request.submit = submit;
  request.submitted_us = now;
  request.deadline_us = deadline_us;
  const bool is_new = by_id_.emplace(request.spec->id, &request).second;
  const bool is_new_call = by_call_.emplace(submit, &request).second;
  SKEIN_INVARIANT(is_new && is_new_call);
  ++in_state_[static_cast<size_t>(request.state)];
  ++of_model_[request.spec->model];
  Arm(request);
  return request;
}

void RequestTable::Erase(const Request& request) {
  --in_state_[static_cast<size_t>(request.state)];
  --of_model_.at(request.spec->model);
  timers_.Remove(request.spec->id);
  by_id_.erase(request.spec->id);
  by_call_.erase(request.submit);
  by_number_.erase(request.number);
}

Request* RequestTable::Find(RequestId id) {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

const Request* RequestTable::Find(RequestId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

Request* RequestTable::Find(RequestId id, Epoch epoch) {
  Request* request = Find(id);
  return request != nullptr && request->epoch == epoch ? request : nullptr;
}

Request* RequestTable::FindByCall(CallId submit) {
  const auto it = by_call_.find(submit);
  return it == by_call_.end() ? nullptr : it->second;
}

Request& RequestTable::At(RequestId id) {
  Request* request = Find(id);
  SKEIN_INVARIANT(request != nullptr);
  return *request;
}

const Request& RequestTable::At(RequestId id) const {
  const Request* request = Find(id);
  SKEIN_INVARIANT(request != nullptr);
  return *request;
}

void RequestTable::Enter(Request& request, State state) {
  --in_state_[static_cast<size_t>(request.state)];
  ++in_state_[static_cast<size_t>(state)];
  request.state = state;
}

void RequestTable::Arm(const Request& request) {
  timers_.Set(request.spec->id, request.NextTimer());
}

std::vector<RequestId> RequestTable::TakeDue(TimeUs now) {
  std::vector<RequestId> due;
  while (const std::optional<RequestId> id = timers_.TakeDue(now)) due.push_back(*id);
  return due;
}

int64_t RequestTable::CountOf(const std::string& model) const {
  const auto it = of_model_.find(model);
  return it == of_model_.end() ? 0 : it->second;
}

absl::Status RequestTable::CheckInvariants() const {
  const auto violated = [](RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("RequestTable: ", ToString(id), " ", what));
  };
  std::array<int64_t, kStates> in_state = {};
  std::map<std::string, int64_t> of_model;
  for (const auto& [number, request] : by_number_) {
    const RequestId id = request.spec->id;
    if (request.number != number || Find(id) != &request) return violated(id, "is not found");
    const auto call = by_call_.find(request.submit);
    if (call == by_call_.end() || call->second != &request) return violated(id, "has no stream");
    if (timers_.Of(id) > request.NextTimer())
      return violated(id, "has a timer that is not remembered");
    ++in_state[static_cast<size_t>(request.state)];
    ++of_model[request.spec->model];
  }
  if (by_id_.size() != by_number_.size() || by_call_.size() != by_number_.size()) {
    return absl::InternalError("RequestTable: an index knows requests that have ended");
  }
  if (in_state != in_state_) return absl::InternalError("RequestTable: states miscounted");
  for (const auto& [model, count] : of_model_) {
    const auto counted = of_model.find(model);
    if (count != (counted == of_model.end() ? 0 : counted->second)) {
      return absl::InternalError("RequestTable: model " + model + " miscounted");
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
