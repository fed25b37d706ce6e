#include "services/rpc/rpc.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/client_interceptor.h"
#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/rpc/credentials.h"

namespace skein::services {
namespace {

// Answers Status at once, holds ListModels until it is released.
class Fake final : public v1::Orchestrator::CallbackService {
 public:
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                   v1::StatusResponse* response) override {
    response->set_epoch(7);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse*) override {
    held = context->DefaultReactor();
    arrived = true;
    arrived.notify_all();
    return held;
  }
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest*,
                                    v1::ExplainResponse*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(absl::UnavailableError("no room")));
    return reactor;
  }
  grpc::ServerUnaryReactor* held = nullptr;
  std::atomic<bool> arrived{false};
};

class RpcTest : public ::testing::Test {
 protected:
  RpcTest() {
    auto served = ServeRpc("127.0.0.1:0", {&fake_});
    EXPECT_TRUE(served.ok()) << served.status();
    server_ = *std::move(served);
    channel_ = channels_.Get("127.0.0.1:" + std::to_string(server_.port));
    stub_ = v1::Orchestrator::NewStub(channel_);
  }

  // The first message with which a method answers raw bytes.
  std::string Ask(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer response;
    call->Read(&response, nullptr);
    queue.Next(&tag, &ok);
    grpc::Slice whole;
    EXPECT_TRUE(ok && response.DumpToSingleSlice(&whole).ok()) << method;
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
  }

  Fake fake_;
  RpcServer server_;
  Channels channels_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<v1::Orchestrator::Stub> stub_;
};

TEST_F(RpcTest, EveryServerHasHealthAndReflection) {
  EXPECT_EQ(Ask("/grpc.health.v1.Health/Check", ""), "\x08\x01");  // status: SERVING
  const std::string services = Ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                   "\x3a\x01*");  // list_services
  EXPECT_NE(services.find("skein.v1.Orchestrator"), std::string::npos);
}

TEST_F(RpcTest, AUnaryCallAnswersOnce) {
  CallTracker calls;
  std::atomic<uint64_t> epoch{0};
  CallUnary<v1::StatusResponse>(
      "orchestrator", &calls, v1::StatusRequest(), 20'000'000,
      [this](auto* c, auto* q, auto* r, auto f) { stub_->async()->Status(c, q, r, std::move(f)); },
      [&epoch](absl::Status status, const v1::StatusResponse& response) {
        EXPECT_TRUE(status.ok()) << status;
        epoch = response.epoch();
        epoch.notify_all();
      });
  epoch.wait(0);
  EXPECT_EQ(epoch, 7u);
}

TEST_F(RpcTest, NoCallbackOutlivesItsTracker) {
  absl::Status ended;
  {
    CallTracker calls;
    CallUnary<v1::ListModelsResponse>(
        "orchestrator", &calls, v1::ListModelsRequest(), 60'000'000,
        [this](auto* c, auto* q, auto* r, auto f) {
          stub_->async()->ListModels(c, q, r, std::move(f));
        },
        [&ended](absl::Status status, const v1::ListModelsResponse&) { ended = status; });
    fake_.arrived.wait(false);
    calls.CancelAndWait();
    EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled);
  }
  fake_.held->Finish(grpc::Status::OK);
}

// Counts the calls of Status that are cancelled.
class CancelCounter final : public grpc::experimental::Interceptor {
 public:
  explicit CancelCounter(std::atomic<int>* cancelled) : cancelled_(cancelled) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CANCEL)) {
      ++*cancelled_;
    } else {
      methods->Proceed();
    }
  }

 private:
  std::atomic<int>* const cancelled_;
};

class CancelCounterFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit CancelCounterFactory(std::atomic<int>* cancelled) : cancelled_(cancelled) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* info) override {
    const bool is_status = std::string_view(info->method()).ends_with("/Status");
    return is_status ? new CancelCounter(cancelled_) : nullptr;
  }

 private:
  std::atomic<int>* const cancelled_;
};

// Keeps the end of a call's state open: the response goes first, the context last.
struct EndOfState {
  std::atomic<bool> begun{false}, released{false}, over{false};
};
struct WatchedResponse {
  v1::StatusResponse message;
  EndOfState* end = nullptr;

  ~WatchedResponse() {
    if (end == nullptr) return;
    end->begun = true;
    end->begun.notify_all();
    end->released.wait(false);
    end->over = true;
  }
};

// A call's context is destroyed on its callback's thread, just when the owner stops.
TEST_F(RpcTest, ACallThatHasEndedIsNotCancelledButWaitedFor) {
  std::atomic<int> cancelled{0};
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<CancelCounterFactory>(&cancelled));
  const auto stub = v1::Orchestrator::NewStub(
      server_.server->experimental().InProcessChannelWithInterceptors({}, std::move(factories)));
  CallTracker calls;
  EndOfState end;
  std::promise<std::function<void()>> callback;
  CallUnary<WatchedResponse>(
      "orchestrator", &calls, v1::StatusRequest(), 60'000'000,
      [&](auto* context, auto* request, WatchedResponse* response, auto f) {
        response->end = &end;
        stub->async()->Status(
            context, request, &response->message,
            [&callback, f = std::move(f)](grpc::Status status) mutable {
              callback.set_value([status, f = std::move(f)]() mutable { f(status); });
            });
      },
      [](absl::Status status, const WatchedResponse& response) {
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(response.message.epoch(), 7u);
      });
  std::thread ending(callback.get_future().get());
  end.begun.wait(false);
  // While this call waits for its cancellation, CancelAndWait walks all calls in flight.
  std::promise<void> held_ended;
  CallUnary<v1::ListModelsResponse>(
      "orchestrator", &calls, v1::ListModelsRequest(), 60'000'000,
      [&](auto* c, auto* q, auto* r, auto f) { stub->async()->ListModels(c, q, r, std::move(f)); },
      [&](absl::Status, const v1::ListModelsResponse&) { held_ended.set_value(); });
  fake_.arrived.wait(false);
  std::thread stopping([&] {
    calls.CancelAndWait();
    EXPECT_TRUE(end.over);
  });
  held_ended.get_future().wait();
  grpc::ClientContext late;
  calls.Add(&late);  // waits until CancelAndWait has finished its walk
  EXPECT_EQ(cancelled, 0);
  calls.Release(&late);
  calls.Leave();
  end.released = true;
  end.released.notify_all();
  ending.join();
  stopping.join();
  fake_.held->Finish(grpc::Status::OK);
}

// How a call of Explain ends: Fake refuses it.
absl::Status Ended(v1::Orchestrator::Stub* stub) {
  CallTracker calls;
  std::promise<absl::Status> ended;
  CallUnary<v1::ExplainResponse>(
      "orchestrator", &calls, v1::ExplainRequest(), 20'000'000,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Explain(c, q, r, std::move(f)); },
      [&ended](absl::Status status, const v1::ExplainResponse&) { ended.set_value(status); });
  return ended.get_future().get();
}

TEST_F(RpcTest, APeersOwnWordArrivesAsItIs) {
  EXPECT_EQ(Ended(stub_.get()), absl::UnavailableError("no room"));
}

TEST_F(RpcTest, APeerThatCannotBeReachedIsNamedWithoutItsAddress) {
  const auto stub = v1::Orchestrator::NewStub(channels_.Get("127.0.0.1:1"));
  EXPECT_EQ(Ended(stub.get()), absl::UnavailableError("the orchestrator cannot be reached"));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A socket that listens on a port of its own.
struct Listener {
  Listener() {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd, 16), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~Listener() { close(fd); }

  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string endpoint;
};

// A busy server's port: accepts connections late, one at a time.
class SlowDoor {
 public:
  SlowDoor(int port, std::chrono::milliseconds after) : to_(port), after_(after) {
    EXPECT_EQ(pipe(closing_.data()), 0);
    thread_ = std::thread([this] {
      while (Readable(listener_.fd, closing_[0])) LetIn(accept(listener_.fd, nullptr, nullptr));
    });
  }
  ~SlowDoor() {
    close(closing_[1]);
    thread_.join();
    close(closing_[0]);
  }
  const std::string& endpoint() const { return listener_.endpoint; }

 private:
  // False when the door closes first.
  bool Readable(int one, int other) {
    std::array<pollfd, 3> fds = {{{one, POLLIN, 0}, {other, POLLIN, 0}, {closing_[0], POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    return fds[2].revents == 0;
  }
  void LetIn(int client) {
    std::this_thread::sleep_for(after_);
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(to_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      while (Readable(client, server) && Pass(client, server) && Pass(server, client)) {
      }
    }
    close(client);
    close(server);
  }
  // Passes on available bytes; false at the end.
  static bool Pass(int from, int to) {
    std::array<char, 4096> bytes;
    const ssize_t count = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN;
    return count > 0 && send(to, bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL) == count;
  }

  const int to_;
  const std::chrono::milliseconds after_;
  Listener listener_;
  std::array<int, 2> closing_;
  std::thread thread_;
};

TEST_F(RpcTest, APeerOnABusyMachineIsReached) {
  SlowDoor door(server_.port, std::chrono::milliseconds(300));
  Channels channels;  // destroyed before the door
  const auto stub = v1::Orchestrator::NewStub(channels.Get(door.endpoint()));
  EXPECT_EQ(Ended(stub.get()), absl::UnavailableError("no room")) << "the server's own text";
}

// It accepts the connection and says nothing. The ping timeout ends the wait, not a call's
// deadline.
TEST_F(RpcTest, APeerThatIsMuteIsGivenUp) {
  const Listener mute;
  const auto stub = v1::Orchestrator::NewStub(channels_.Get(mute.endpoint));
  EXPECT_EQ(Ended(stub.get()), absl::UnavailableError("the orchestrator cannot be reached"));
}

// One channel across a peer's death and return.
TEST_F(RpcTest, APeerThatComesBackIsReachedAgain) {
  EXPECT_EQ(Ended(stub_.get()), absl::UnavailableError("no room"));
  const std::string address = "127.0.0.1:" + std::to_string(server_.port);
  server_.server->Shutdown();
  server_.server.reset();
  const absl::Status gone = absl::UnavailableError("the orchestrator cannot be reached");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ended(stub_.get()), gone);
  auto served = ServeRpc(address, {&fake_});
  ASSERT_TRUE(served.ok()) << served.status();
  server_ = *std::move(served);
  channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(20));
  EXPECT_EQ(Ended(stub_.get()), absl::UnavailableError("no room"));
}

// Speaks just enough HTTP/2 for a server to accept its connection.
class RawClient {
 public:
  explicit RawClient(int port) {
    const sockaddr_in address = Loopback(port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Send(std::string("\0\0\0\4\0\0\0\0\0", 9));  // SETTINGS, none
  }
  ~RawClient() { close(fd_); }

  // The payload of the next frame of this type; none at the connection's end.
  std::optional<std::string> Frame(uint8_t type) {
    for (;;) {
      const std::string head = Read(9);
      if (head.size() < 9) return std::nullopt;
      const size_t bytes = Big(head, 0) >> 8;
      std::string payload = Read(bytes);
      if (static_cast<uint8_t>(head[3]) == type) return payload;
    }
  }

  // The four bytes from `at` on.
  static uint32_t Big(const std::string& bytes, size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  }

 private:
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  std::string Read(size_t bytes) {
    std::string text(bytes, '\0');
    const ssize_t count = bytes == 0 ? 0 : recv(fd_, text.data(), bytes, MSG_WAITALL);
    text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return text;
  }

  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
};

constexpr uint8_t kSettingsFrame = 4, kPingFrame = 6;

// A vanished host neither answers nor closes. This client behaves so from here on. The test ends
// when the server has closed the connection.
TEST_F(RpcTest, AClientThatVanishedIsAskedAndDropped) {
  RawClient client(server_.port);
  EXPECT_TRUE(client.Frame(kPingFrame).has_value());
  while (client.Frame(kPingFrame).has_value()) {
  }
}

TEST_F(RpcTest, AConnectionHasABoundedNumberOfCalls) {
  constexpr uint16_t kMaxConcurrentStreams = 3;
  const std::optional<std::string> settings = RawClient(server_.port).Frame(kSettingsFrame);
  ASSERT_TRUE(settings.has_value());
  std::map<uint16_t, uint32_t> values;
  for (size_t i = 0; i + 6 <= settings->size(); i += 6) {
    const uint32_t head = RawClient::Big(*settings, i);
    values[static_cast<uint16_t>(head >> 16)] = RawClient::Big(*settings, i + 2);
  }
  EXPECT_EQ(values[kMaxConcurrentStreams], static_cast<uint32_t>(kConnectionStreamsMax));
}

TEST_F(RpcTest, AMessageThatIsTooLargeIsRefused) {
  v1::ExplainRequest request;
  request.mutable_request()->assign(kMessageBytesMax + 1, 'x');
  grpc::ClientContext context;
  v1::ExplainResponse response;
  EXPECT_EQ(stub_->Explain(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Channels, OneThatNobodyAsksForIsLetGo) {
  Channels::Clock::time_point now{};
  Channels channels([&now] { return now; });
  const auto kept = channels.Get("127.0.0.1:1");
  for (int port = 2; port < 50; ++port) channels.Get("127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(channels.size(), 49u);
  now += Channels::kIdle / 2;
  EXPECT_EQ(channels.Get("127.0.0.1:1"), kept);
  now += Channels::kIdle / 2;
  EXPECT_EQ(channels.Get("127.0.0.1:1"), kept);
  EXPECT_EQ(channels.size(), 1u);
}

TEST(Channels, OneThatIsForgottenIsMadeAnew) {
  Channels::Clock::time_point now{};
  Channels channels([&now] { return now; });
  std::weak_ptr<grpc::Channel> first = channels.Get("127.0.0.1:1");
  channels.Forget("127.0.0.1:1");
  EXPECT_EQ(channels.Get("127.0.0.1:1"), first.lock()) << "it has only just been made";
  now += Channels::kFresh;
  channels.Forget("127.0.0.1:1");
  channels.Forget("127.0.0.1:2");  // there is none
  EXPECT_EQ(channels.size(), 0u);
  EXPECT_NE(channels.Get("127.0.0.1:1"), first.lock());
  EXPECT_FALSE(first.expired()) << "its connection may be ending now";
  now += Channels::kIdle;
  channels.Get("127.0.0.1:1");
  EXPECT_TRUE(first.expired());
}

TEST_F(RpcTest, AnAddressThatIsTakenIsNamed) {
  const std::string address = "127.0.0.1:" + std::to_string(server_.port);
  const auto second = ServeRpc(address, {&fake_});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(std::string(second.status().message()).find(address), std::string::npos);
}

}  // namespace
}  // namespace skein::services
