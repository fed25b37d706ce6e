// Bodies that a sink takes while they arrive.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "services/http/body_sink.h"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/http/testing/server_fixture.h"

namespace skein::services::http {
namespace {

using testing::kLong;
using testing::MakeRequest;
using testing::RawClient;
using testing::ServerTest;

// Collects what it takes; after each piece it is full, until the test makes room.
class TestSink : public BodySink {
 public:
  explicit TestSink(bool fills) : fills_(fills) {}
  ~TestSink() override { destroyed.set_value(); }

  void Start(std::function<void()> room) override { room_ = std::move(room); }
  bool Take(std::string_view bytes) override {
    std::lock_guard lock(mutex_);
    taken_.append(bytes);
    changed_.notify_all();
    return !fills_;
  }

  void MakeRoom() { room_(); }
  // Waits until at least so many bytes were taken.
  size_t AwaitTaken(size_t bytes) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return taken_.size() >= bytes; }));
    return taken_.size();
  }
  std::string taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }

  std::promise<void> destroyed;

 private:
  const bool fills_;
  std::function<void()> room_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string taken_;  // guarded by mutex_
};

class SinkTest : public ServerTest {
 protected:
  static constexpr size_t kSunkBytesMax = 1 << 20;

  // POST /sink gives its body to the sink that the test has made; /no refuses.
  void StartSinkServer(ServerOptions options = {}) {
    options.body_bytes_max = 100;
    options.planned_bytes_max = kSunkBytesMax;
    options.plan_body = [this](const Request& head) -> BodyPlan {
      EXPECT_EQ(head.remote, "127.0.0.1");
      if (head.path == "/no") return {.refusal = Response{.status = 401, .body = "no"}};
      if (head.path != "/sink") return {.bytes_max = 100};
      return {.bytes_max = kSunkBytesMax, .sink = std::exchange(sink_, nullptr)};
    };
    routes_.Add("POST", "/sink", [](Request request, std::shared_ptr<Responder> responder) {
      EXPECT_TRUE(request.body.empty());
      auto* sink = static_cast<TestSink*>(request.sink.get());
      ASSERT_NE(sink, nullptr);
      responder->Send({.body = std::to_string(sink->taken().size())});
    });
    StartServer(options);
  }

  std::shared_ptr<TestSink> sink_ = std::make_shared<TestSink>(false);
};

TEST_F(SinkTest, ItTakesALongBodyAndTheConnectionGoesOn) {
  StartSinkServer();
  RawClient client(port());
  client.Send(MakeRequest("POST", "/sink", std::string(500'000, 'x')));
  EXPECT_EQ(client.ReadResponse().body, "500000");
  client.Send(MakeRequest("POST", "/echo", "short"));
  EXPECT_EQ(client.ReadResponse().body, "short");
  client.Send(MakeRequest("POST", "/echo", std::string(101, 'x')));
  EXPECT_EQ(client.ReadResponse().status, 413);
}

TEST_F(SinkTest, WhileItIsFullNothingIsRead) {
  const std::shared_ptr<TestSink> sink = sink_ = std::make_shared<TestSink>(true);
  StartSinkServer();
  RawClient client(port());
  const std::string body(900'000, 'x');
  std::thread sender([&] { client.Send(MakeRequest("POST", "/sink", body)); });
  size_t taken = 0;
  while (taken < body.size()) {
    const size_t now = sink->AwaitTaken(taken + 1);
    EXPECT_LE(now - taken, size_t{256} << 10);  // what one round of reading may hold
    taken = now;
    sink->MakeRoom();
  }
  sender.join();
  EXPECT_EQ(client.ReadResponse().body, "900000");
  EXPECT_EQ(sink->taken(), body);
}

TEST_F(SinkTest, ItIsDroppedWhenTheClientLeaves) {
  auto destroyed = sink_->destroyed.get_future();
  TestSink* const sink = sink_.get();
  StartSinkServer();
  RawClient client(port());
  client.Send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
  sink->AwaitTaken(3);
  client.Close();
  EXPECT_EQ(destroyed.wait_for(kLong), std::future_status::ready);
}

TEST_F(SinkTest, LimitsHoldHoweverTheBodyComes) {
  StartSinkServer();
  const std::string too_long = std::to_string(kSunkBytesMax + 1);
  RawClient client(port());
  client.Send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: " + too_long + "\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 413);
  sink_ = std::make_shared<TestSink>(false);
  RawClient chunked(port());
  chunked.Send("POST /sink HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::thread sender([&] {
    for (size_t sent = 0; sent <= kSunkBytesMax; sent += 1 << 16) {
      chunked.Send("10000\r\n" + std::string(1 << 16, 'x') + "\r\n");
    }
  });
  EXPECT_EQ(chunked.ReadResponse().status, 413);
  sender.join();
  RawClient echo(port());
  echo.Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
            std::string(101, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(echo.ReadResponse().status, 413);
  // The limit that is named is the one of this request, not the largest that any may have.
  RawClient named(port());
  named.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + too_long + "\r\n\r\n");
  const Response refused = named.ReadResponse();
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find(" 100 bytes"), std::string::npos) << refused.body;
}

TEST_F(SinkTest, ARefusalComesBeforeTheBody) {
  StartSinkServer();
  RawClient client(port());
  client.Send("POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
  const Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(response.body, "no");
}

}  // namespace
}  // namespace skein::services::http
