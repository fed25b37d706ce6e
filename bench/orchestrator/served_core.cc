#include "bench/orchestrator/served_core.h"

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <variant>

#include "proto/orchestrator.pb.h"
#include "services/codec/codec.h"

namespace skein::bench {
namespace {

using namespace scheduler;  // NOLINT: the messages, all of them
using services::FromProto;
using services::ToProto;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

template <class T>
T Value(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

}  // namespace

double ServedCore::NowSeconds() const {
  timespec time;
  clock_gettime(cpu_clock_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void ServedCore::Lap(Part part) {
  const double now_s = NowSeconds();
  seconds_[part] += now_s - std::exchange(lap_s_, now_s);
}

void ServedCore::Forget() {
  seconds_ = {};
  worker_bytes_ = report_bytes_ = sent_bytes_ = 0;
}

std::vector<ServedCore::Out> ServedCore::FromRouter(uint64_t stream, const std::string& bytes,
                                                    TimeUs now) {
  std::vector<Out> out;
  lap_s_ = NowSeconds();
  v1::RouterMessage message;
  message.ParseFromString(bytes);
  Lap(kDecode);
  Check(peers_.at(stream).counters.Take(message, 0));
  Lap(kStream);
  const auto handle = [&](auto event) {
    Lap(kDecode);
    Handle(std::move(event), now, &out);
  };
  switch (message.message_case()) {
    case v1::RouterMessage::kHello:
      handle(RouterConnected{{stream}, Value(FromProto(message.hello()))});
      break;
    case v1::RouterMessage::kSubmit:
      handle(Value(FromProto(message.submit())));
      break;
    case v1::RouterMessage::kEnded:
      handle(RouterEnded{Value(FromProto(message.ended()))});
      break;
    case v1::RouterMessage::kReport:
      handle(RouterReported{{stream}, Value(FromProto(message.report()))});
      break;
    default:
      Check(absl::InternalError("a message that the bench does not send"));
  }
  return out;
}

std::vector<ServedCore::Out> ServedCore::FromWorker(uint64_t stream, const std::string& bytes,
                                                    TimeUs now) {
  std::vector<Out> out;
  lap_s_ = NowSeconds();
  worker_bytes_ += static_cast<double>(bytes.size());
  v1::WorkerMessage message;
  message.ParseFromString(bytes);
  if (message.has_report()) report_bytes_ += static_cast<double>(bytes.size());
  Lap(kDecode);
  Peer& worker = peers_.at(stream);
  Check(worker.counters.Take(message, 0));
  Lap(kStream);
  const auto handle = [&](auto event) {
    Lap(kDecode);
    Handle(std::move(event), now, &out);
  };
  const auto handle_at = [&](auto event) {
    event.instance = worker.instance;
    handle(std::move(event));
  };
  switch (message.message_case()) {
    case v1::WorkerMessage::kHello:
      handle(RegisterCalled{{stream}, Value(FromProto(message.hello()))});
      break;
    case v1::WorkerMessage::kReport:
      handle(ReportCalled{{stream}, Value(FromProto(message.report()))});
      break;
    case v1::WorkerMessage::kPlaceDecode:
      handle(PlaceDecodeCalled{{stream}, Value(FromProto(message.place_decode()))});
      break;
    case v1::WorkerMessage::kAssigned:
      handle_at(Value(FromProto(message.assigned())));
      break;
    case v1::WorkerMessage::kOpened:
      handle_at(Value(FromProto(message.opened())));
      break;
    default:
      Check(absl::InternalError("a message that the bench does not send"));
  }
  return out;
}

void ServedCore::Tick(TimeUs now) {
  std::vector<Out> out;
  lap_s_ = NowSeconds();
  Handle(OrchestratorTick{}, now, &out);
}

template <class Message>
void ServedCore::Send(uint64_t stream, Message message, std::vector<Out>* out) {
  Lap(kEncode);
  peers_.at(stream).counters.Stamp(&message, 0);
  Lap(kStream);
  out->push_back({stream, message.SerializeAsString()});
  sent_bytes_ += static_cast<double>(out->back().bytes.size());
  Lap(kEncode);
}

void ServedCore::Handle(const OrchestratorEvent& event, TimeUs now, std::vector<Out>* out) {
  std::vector<OrchestratorEffect> effects = core_.Handle(event, now);
  Lap(kCore);
  const auto order = [&](InstanceId instance, auto set) {
    v1::OrchestratorMessage message;
    set(&message);
    Send(workers_.at(instance), std::move(message), out);
  };
  const auto answer = [&](CallId call, auto set) {
    v1::OrchestratorMessage message;
    set(&message);
    Send(call.value, std::move(message), out);
  };
  const auto tell = [&](uint64_t stream, auto set) {
    v1::OrchestratorRouterMessage message;
    set(&message);
    Send(stream, std::move(message), out);
  };
  const auto welcome = [&](CallId call, uint64_t generation) {
    peers_.at(call.value).counters.Renumber(FirstNumberOf(generation) + call.value);
  };
  const Overloaded visit{
      [&](const SendPlanUpdate& e) {
        if (const auto* failed = std::get_if<Failed>(&e.update)) Check(failed->status);
        tell(routers_.at(e.id.router), [&](auto* m) {
          *m->mutable_update()->mutable_id() = ToProto(e.id);
          *m->mutable_update()->mutable_update() = ToProto(e.update);
        });
      },
      [&](const WelcomeRouter& e) {
        Check(e.welcome.status);
        routers_[e.router] = e.call.value;
        welcome(e.call, e.welcome.generation.number);
        tell(e.call.value, [&](auto* m) { *m->mutable_welcome() = ToProto(e.welcome); });
      },
      [&](const AnswerRouterReport& e) {
        tell(e.call.value, [](auto* m) { m->mutable_report_taken(); });
      },
      [&](const AnswerRegister& e) {
        Check(e.reply.status);
        workers_[e.reply.instance] = e.call.value;
        peers_.at(e.call.value).instance = e.reply.instance;
        welcome(e.call, e.reply.generation.number);
        answer(e.call, [&](auto* m) { *m->mutable_welcome() = ToProto(e.reply); });
      },
      [&](const AnswerReport& e) {
        answer(e.call, [&](auto* m) { *m->mutable_report_taken() = ToProto(e.reply); });
      },
      [&](const AnswerPlaceDecode& e) {
        answer(e.call, [&](auto* m) { *m->mutable_decode_placed() = ToProto(e); });
      },
      [&](const CallAssign& e) {
        order(e.instance, [&](auto* m) { *m->mutable_assign() = ToProto(e.request); });
      },
      [&](const CallStart& e) {
        order(e.instance, [&](auto* m) { *m->mutable_start() = ToProto(e.request); });
      },
      [&](const CallAnnounce& e) {
        order(e.instance, [&](auto* m) { *m->mutable_announce() = ToProto(e.request); });
      },
      [&](const CallCancel& e) {
        order(e.instance, [&](auto* m) { *m->mutable_cancel() = ToProto(e.request); });
      },
      [](const auto&) {},
  };
  for (const OrchestratorEffect& effect : effects) std::visit(visit, effect);
  effects.clear();
  Lap(kEncode);
}

}  // namespace skein::bench
