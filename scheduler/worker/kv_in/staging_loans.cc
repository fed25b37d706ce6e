#include "scheduler/worker/kv_in/staging_loans.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// A writer that waits for a buffer is remembered for as long as its lease.
StagingTimes TimesOf(const StagingConfig& config, TimeUs lease_us) {
  return {.lease_us = lease_us, .acquire_lease_us = lease_us, .hold_us = config.hold_us};
}

}  // namespace

StagingLoans::StagingLoans(const StagingConfig& config, TimeUs lease_us,
                           std::function<GrantId()> new_grant, std::function<void(KvInEffect)> emit)
    : config_(config),
      new_grant_(std::move(new_grant)),
      emit_(std::move(emit)),
      queue_(static_cast<int>(config.memory.size()), TimesOf(config, lease_us)),
      loans_(config.memory.size()) {
  SKEIN_CHECK(config.slots > 0);
}

void StagingLoans::Acquire(const Writer& writer, CallId call, uint64_t acquisition, TimeUs now) {
  Refuse(writer, absl::ResourceExhaustedError("a later call of this writer replaces this one"));
  calls_[writer] = call;
  call_ends_.Set(writer, now + config_.acquire_wait_us);
  const std::optional<int> buffer =
      queue_.Acquire({writer.id, writer.epoch}, writer.instance, now, acquisition);
  if (buffer.has_value()) AnswerOne(writer, *buffer);
  AnswerAll();
}

void StagingLoans::Refuse(const Writer& writer, absl::Status status) {
  const auto call = calls_.extract(writer);
  if (call.empty()) return;
  call_ends_.Remove(writer);
  emit_(AnswerAcquireStagingBuffer{call.mapped(), {std::move(status), ""}});
}

void StagingLoans::Renew(const Writer& writer, TimeUs now) {
  queue_.Renew({writer.id, writer.epoch}, writer.instance, now);
  AnswerAll();
}

void StagingLoans::Finish(const Writer& writer, TimeUs now, uint64_t acquisition) {
  queue_.Finished({writer.id, writer.epoch}, writer.instance, now, acquisition);
  AnswerAll();
}

void StagingLoans::End(RequestId id, Epoch epoch, TimeUs now) {
  queue_.End({id, epoch}, now);
  AnswerAll();
}

std::optional<int> StagingLoans::BufferOf(const Writer& writer) const {
  return queue_.BufferOf({writer.id, writer.epoch}, writer.instance);
}

// The grant under which it may write to the buffer; 0: not yet, the former writer's is being
// closed.
GrantId StagingLoans::Lend(int buffer, const Writer& writer) {
  Loan& loan = loans_[static_cast<size_t>(buffer)];
  if (loan.grant == GrantId{}) loan = {writer, new_grant_()};
  if (loan.writer == writer && !loan.closing) return loan.grant;
  if (!std::exchange(loan.closing, true)) emit_(CloseGrant{loan.grant});
  return {};
}

// Its call waits on if the buffer may still be written to under its former writer's grant.
void StagingLoans::AnswerOne(const Writer& writer, int buffer) {
  const auto it = calls_.find(writer);
  if (it == calls_.end()) return;
  const GrantId grant = Lend(buffer, writer);
  if (grant == GrantId{}) return;
  const std::string& memory = config_.memory[static_cast<size_t>(buffer)];
  emit_(AnswerAcquireStagingBuffer{it->second, {absl::OkStatus(), memory}, grant});
  calls_.erase(it);
  call_ends_.Remove(writer);
}

void StagingLoans::AnswerAll() {
  for (int buffer = 0; buffer < queue_.buffers(); ++buffer) {
    const std::optional<StagingRequest> request = queue_.OwnerOf(buffer);
    const std::optional<InstanceId> instance = queue_.WriterOf(buffer);
    if (instance.has_value()) AnswerOne({request->id, request->epoch, *instance}, buffer);
  }
}

bool StagingLoans::GrantClosed(GrantId grant) {
  const auto loan = std::find_if(loans_.begin(), loans_.end(), [&](const Loan& candidate) {
    return candidate.closing && candidate.grant == grant;
  });
  if (loan == loans_.end()) return false;
  *loan = {};
  AnswerAll();
  return true;
}

void StagingLoans::RunTimers(TimeUs now) {
  queue_.Tick(now);
  AnswerAll();
  while (const auto writer = call_ends_.TakeDue(now)) {
    Refuse(*writer, absl::ResourceExhaustedError("no staging buffer yet"));
  }
}

TimeUs StagingLoans::NextDeadline() const {
  return std::min(call_ends_.Next(), queue_.NextDeadline());
}

absl::Status StagingLoans::CheckInvariants() const {
  for (const auto& [writer, call] : calls_) {
    if (call_ends_.Of(writer) != kNever) continue;
    return absl::InternalError(absl::StrCat("StagingLoans 1: the call of a writer of ",
                                            ToString(writer.id), " waits without an end"));
  }
  for (const Loan& loan : loans_) {
    if (!loan.closing || loan.grant != GrantId{}) continue;
    return absl::InternalError("StagingLoans 2: a buffer without a grant is being closed");
  }
  return queue_.CheckInvariants();
}

}  // namespace skein::scheduler
