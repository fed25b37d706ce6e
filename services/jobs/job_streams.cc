// JobShell: the streams of the routers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/jobs/job_shell.h"
#include "services/log/log.h"
#include "services/rpc/credentials.h"

namespace skein::services {
namespace {

namespace core = scheduler::jobs;

constexpr uint32_t kRoomMax = 4096;

}  // namespace

JobShell::Stream* JobShell::Connect(grpc::CallbackServerContext* context) {
  const uint64_t call = ++calls_;
  auto stream = Stream::Make(
      context, [this](std::function<void()> hook) { loop_.PostFirst(std::move(hook)); });
  if (absl::Status caller = CheckCaller(*context); !caller.ok()) {
    stream->Close(ToGrpc(caller));
  } else if (!loop_.TryPostFirst([this, call, stream] { Add(call, stream); })) {
    stream->Close(ToGrpc(absl::ResourceExhaustedError("the inbox is full, or the process stops")));
  }
  stream->Open({.message = [this, call](const v1::RouterLines& message) { Take(call, message); },
                .ended =
                    [this, call] {
                      if (peers_.erase(call) > 0) Handle(core::RouterDisconnected{call});
                    }});
  return stream.get();
}

void JobShell::Add(uint64_t call, const std::shared_ptr<Stream>& stream) {
  if (absl::Status ready = Ready(); !ready.ok()) return stream->Close(ToGrpc(ready));
  if (peers_.size() >= kStreamsMax) {
    return stream->Close(ToGrpc(absl::ResourceExhaustedError(
        absl::StrCat("The limit of router streams is reached (", kStreamsMax, ")."))));
  }
  peers_.emplace(call, Peer{stream});
}

void JobShell::Take(uint64_t call, const v1::RouterLines& message) {
  const auto it = peers_.find(call);
  if (it == peers_.end()) return;
  absl::Status status;
  if (message.has_hello() == it->second.named) {
    status = absl::InvalidArgumentError("hello: it is the first message, and only that");
  } else if (message.has_hello()) {
    it->second.named = true;
    status = TakeHello(call, message.hello());
  } else if (message.has_result()) {
    status = TakeResult(call, message.result());
  } else if (message.has_returned()) {
    const auto key = KeyOf(message.returned().line());
    if (key.has_value()) Handle(core::LineReturned{call, *key});
  } else {
    Handle(core::RouterSpoke{call});
  }
  if (status.ok()) return;
  LogWarning("the stream of a router for jobs was closed",
             {{"reason", std::string(status.message())}});
  it->second.stream->Close(ToGrpc(status));
  peers_.erase(call);
  Handle(core::RouterDisconnected{call});
}

absl::Status JobShell::TakeHello(uint64_t call, const v1::RouterLines::Hello& hello) {
  if (hello.router() == 0) return absl::InvalidArgumentError("hello.router: it is 0");
  v1::OrchestratorLines lease;
  lease.set_lease_us(static_cast<uint64_t>(options_.core.lease_us));
  Write(call, std::move(lease));
  core::RouterConnected event{call, hello.router(), std::min(hello.room(), kRoomMax), {}};
  for (const v1::LineId& held : hello.held()) {
    if (const auto key = KeyOf(held)) {
      event.held.push_back(*key);
      continue;
    }
    v1::OrchestratorLines cancel;
    *cancel.mutable_cancel() = held;
    Write(call, std::move(cancel));
  }
  LogInfo("a router computes lines of jobs",
          {{"router", hello.router()}, {"room", static_cast<int64_t>(hello.room())}});
  Handle(std::move(event));
  return absl::OkStatus();
}

absl::Status JobShell::TakeResult(uint64_t call, const v1::RouterLines::Result& result) {
  if (result.status_code() > 599) {
    return absl::InvalidArgumentError(
        absl::StrCat("result.status_code: ", result.status_code(), " is above 599"));
  }
  const auto key = KeyOf(result.line());
  if (!key.has_value()) {  // the job has ended
    Handle(core::RouterSpoke{call});
    v1::OrchestratorLines kept;
    *kept.mutable_kept() = result.line();
    Write(call, std::move(kept));
    return absl::OkStatus();
  }
  Answer(call, *key,
         {*key,
          result.status_code(),
          result.request_id(),
          result.body(),
          {result.prompt_tokens(), result.cached_tokens(), result.output_tokens()}});
  return absl::OkStatus();
}

void JobShell::Answer(uint64_t call, const core::LineKey& key, LineResult result) {
  const uint64_t payload = ++payloads_;
  const core::LineAnswered event{call, key, result.ok(), result.tokens, payload};
  results_.emplace(payload, std::move(result));
  Handle(event);
}

std::optional<core::LineKey> JobShell::KeyOf(const v1::LineId& id) const {
  const auto it = numbers_.find(id.job());
  if (it == numbers_.end()) return std::nullopt;
  return core::LineKey{it->second, id.line()};
}

void JobShell::FillId(const core::LineKey& key, v1::LineId* id) const {
  const auto it = known_.find(key.job);
  if (it != known_.end()) id->set_job(it->second.id);
  id->set_line(key.line);
}

void JobShell::Write(uint64_t call, v1::OrchestratorLines message) {
  const auto it = peers_.find(call);
  if (it != peers_.end()) it->second.stream->Write(std::move(message));
}

void JobShell::On(const core::WithdrawLine& effect) {
  v1::OrchestratorLines message;
  FillId(effect.key, message.mutable_cancel());
  Write(effect.stream, std::move(message));
}

void JobShell::On(const core::AcknowledgeLine& effect) {
  v1::OrchestratorLines message;
  FillId(effect.key, message.mutable_kept());
  Write(effect.stream, std::move(message));
}

void JobShell::On(const core::GiveLine& effect) {
  Store([this, term = term_, effect](JobStore* store) { ReadBody(store, term, effect); });
}

void JobShell::ReadBody(JobStore* store, uint64_t term, const core::GiveLine& effect) {
  auto body = store->BodyOf(effect.key);
  const bool input_is_wrong = absl::IsInternal(body.status()) || absl::IsNotFound(body.status());
  if (!body.ok() && !input_is_wrong) {
    // No further line until the disk answers again; this one is given back at once.
    Back(term, [this] { Handle(core::StoreStands{false}); });
    Back(term, [this, effect] { Handle(core::LineReturned{effect.stream, effect.key}); });
    return Failed(term, "a line of a job was not read", effect.key.job, body.status(),
                  [this] { Handle(core::StoreStands{true}); });
  }
  Back(term, [this, effect, body = std::move(body)] { SendOrder(effect, body); });
}

void JobShell::SendOrder(const core::GiveLine& effect, const absl::StatusOr<std::string>& body) {
  if (!core_->Gives(effect.stream, effect.key)) return;
  if (!body.ok()) {
    LogError("a line of a job's input cannot be read",
             {{"job", known_[effect.key.job].id},
              {"line", effect.key.line},
              {"reason", std::string(body.status().message())}});
    return Answer(effect.stream, effect.key,
                  {effect.key,
                   0,
                   "",
                   R"({"code": "server_error", "message": "The input line cannot be read."})",
                   {}});
  }
  v1::OrchestratorLines message;
  auto* const order = message.mutable_order();
  FillId(effect.key, order->mutable_line());
  order->set_endpoint(known_[effect.key.job].endpoint);
  order->set_owner(known_[effect.key.job].owner);
  order->set_body(*body);
  if (effect.within_us != scheduler::kNever) {
    order->set_within_us(static_cast<uint64_t>(effect.within_us));
  }
  Write(effect.stream, std::move(message));
}

}  // namespace skein::services
