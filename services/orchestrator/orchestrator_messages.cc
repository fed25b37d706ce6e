// What arrives on the streams of workers and routers, as events of the core.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/log/log.h"
#include "services/orchestrator/orchestrator_shell.h"

namespace skein::services {
namespace {

// A process may know the ids of another one; it speaks for itself only.
template <typename Message>
absl::Status IsOfInstance(const Message& message, scheduler::InstanceId instance) {
  if (message.instance == instance) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("instance: ", message.instance.value, " is not ",
                                                 instance.value, ", whose stream this is"));
}

// With --mtls a certificate says what a worker may be.
absl::Status CheckRole(bool prefill, tls::RoleSet certified) {
  const tls::Role said = prefill ? tls::Role::kPrefillWorker : tls::Role::kDecodeWorker;
  if (certified.Has(said)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("hello: a ", std::string(tls::NameOf(said)),
                                                  " registers with a certificate for ",
                                                  tls::NamesOf(certified)));
}

const char kDraining[] = "the orchestrator drains and takes no new requests";

}  // namespace

absl::Status OrchestratorShell::Take(uint64_t call, scheduler::InstanceId instance,
                                     const v1::WorkerMessage& message) {
  const bool registered = instance.value != 0;
  if (registered == message.has_hello()) {
    return absl::InvalidArgumentError("hello: is missing, or not the first message");
  }
  switch (message.message_case()) {
    case v1::WorkerMessage::kHello: {
      auto hello = FromProto(message.hello());
      if (!hello.ok()) return hello.status();
      const bool prefill = hello->identity.role == scheduler::Role::kPrefill;
      if (absl::Status s = CheckRole(prefill, workers_.RolesOf(call)); !s.ok()) return s;
      LogInfo("instance registers", {{"instance_role", prefill ? "prefill" : "decode"},
                                     {"model", hello->identity.model},
                                     {"endpoint", hello->identity.endpoint}});
      Handle(scheduler::RegisterCalled{{call}, *std::move(hello)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kReport: {
      auto report = FromProto(message.report());
      if (!report.ok()) return report.status();
      if (absl::Status of = IsOfInstance(*report, instance); !of.ok()) return of;
      Handle(scheduler::ReportCalled{{call}, *std::move(report)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kGoodbye: {
      auto goodbye = FromProto(message.goodbye());
      if (!goodbye.ok()) return goodbye.status();
      if (absl::Status of = IsOfInstance(*goodbye, instance); !of.ok()) return of;
      LogInfo("instance unregisters", {{"instance", goodbye->instance.value}});
      Handle(scheduler::UnregisterCalled{{call}, *std::move(goodbye)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kPlaceDecode: {
      auto asked = FromProto(message.place_decode());
      if (!asked.ok()) return asked.status();
      if (absl::Status of = IsOfInstance(*asked, instance); !of.ok()) return of;
      Handle(scheduler::PlaceDecodeCalled{{call}, *std::move(asked)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kAssigned:
      return TakeResult(instance, FromProto(message.assigned()));
    case v1::WorkerMessage::kOpened:
      return TakeResult(instance, FromProto(message.opened()));
    case v1::WorkerMessage::kFormation: {
      auto told = FromProto(message.formation());
      if (!told.ok()) return told.status();
      Handle(scheduler::FormationReported{instance, *std::move(told)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kMode: {
      auto told = FromProto(message.mode());
      if (!told.ok()) return told.status();
      Handle(scheduler::ModeReported{instance, *std::move(told)});
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError("message: is missing");
  }
}

template <typename Event>
absl::Status OrchestratorShell::TakeResult(scheduler::InstanceId instance,
                                           absl::StatusOr<Event> result) {
  if (!result.ok()) return result.status();
  result->instance = instance;
  Handle(*std::move(result));
  return absl::OkStatus();
}

absl::Status OrchestratorShell::TakeFromRouter(uint64_t call, uint64_t router,
                                               const v1::RouterMessage& message) {
  if ((router != 0) == message.has_hello()) {
    return absl::InvalidArgumentError("hello: is missing, or not the first message");
  }
  switch (message.message_case()) {
    case v1::RouterMessage::kHello: {
      auto hello = FromProto(message.hello());
      if (!hello.ok()) return hello.status();
      LogInfo("router connects", {{"router", hello->identity.router},
                                  {"endpoint", hello->identity.endpoint},
                                  {"requests", static_cast<int64_t>(hello->requests.size())}});
      Handle(scheduler::RouterConnected{{call}, *std::move(hello)});
      return absl::OkStatus();
    }
    case v1::RouterMessage::kSubmit:
      return TakeSubmit(router, message.submit());
    case v1::RouterMessage::kEnded: {
      auto end = FromProto(message.ended());
      if (!end.ok()) return end.status();
      if (absl::Status of = IsOfRouter(end->id, router); !of.ok()) return of;
      Handle(scheduler::RouterEnded{*std::move(end)});
      return absl::OkStatus();
    }
    case v1::RouterMessage::kReport: {
      const auto load = FromProto(message.report());
      if (!load.ok()) return load.status();
      KeepTraces(message.report());
      Handle(scheduler::RouterReported{{call}, *load});
      return absl::OkStatus();
    }
    case v1::RouterMessage::kGoodbye:
      LogInfo("router leaves", {{"router", router}});
      Handle(scheduler::RouterLeft{{call}});
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("message: is missing");
  }
}

void OrchestratorShell::KeepTraces(const v1::RouterLoad& load) {
  for (const std::string& trace : load.keep_traces()) {
    TraceId id{};
    if (trace.size() != id.size()) continue;
    std::copy(trace.begin(), trace.end(), id.begin());
    if (tracer_ != nullptr) tracer_->Keep(id);
    kept_traces_.Add(trace);
  }
}

// A spec that is refused fails its request, and no other.
absl::Status OrchestratorShell::TakeSubmit(uint64_t router, const v1::SubmitRequest& submit) {
  absl::StatusOr<scheduler::SubmitCalled> called = FromProto(submit);
  const auto id = called.ok() ? called->spec->id : IdOfSpec(submit.spec());
  if (!id.ok()) return id.status();
  if (absl::Status of = IsOfRouter(*id, router); !of.ok()) return of;
  if (called.ok() && draining()) called = absl::UnavailableError(kDraining);
  if (!called.ok()) {
    On(scheduler::SendPlanUpdate{*id, scheduler::Failed{called.status()}});
  } else {
    Handle(*std::move(called));
  }
  return absl::OkStatus();
}

}  // namespace skein::services
