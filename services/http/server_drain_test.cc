// How a server that drains or stops ends its answers and connections.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/http/testing/server_fixture.h"

namespace skein::services::http {
namespace {

using testing::kLong;
using testing::MakeRequest;
using testing::RawClient;
using testing::ServerTest;
using testing::Why;

TEST_F(ServerTest, StopLetsAnswersEnd) {
  StartServer();
  RawClient idle(port()), busy(port());
  busy.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  responder->StartStream({});
  std::thread stopper([&] { server_->Stop(kLong); });
  const Response told = idle.ReadResponse();  // so the stop has begun
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(FindHeader(told.headers, "Retry-After"), "1");
  EXPECT_EQ(FindHeader(told.headers, "Connection"), "close");
  EXPECT_TRUE(idle.AtEnd());
  responder->Write("last words");
  responder->Finish();
  EXPECT_EQ(busy.ReadResponse().body, "last words");
  busy.Close();
  stopper.join();
  EXPECT_FALSE(RawClient(port()).connected());
}

TEST_F(ServerTest, ADrainClosesWhatIsIdleAndTheOthersAfterTheirAnswers) {
  StartServer();
  RawClient opened(port()), idle(port()), busy(port());
  idle.Send(MakeRequest("POST", "/echo", "a"));
  EXPECT_EQ(FindHeader(idle.ReadResponse().headers, "Connection"), "keep-alive");
  busy.Send(MakeRequest("GET", "/hold"));
  const auto responder = Held();
  server_->BeginDrain();
  EXPECT_TRUE(idle.AtEnd());
  RawClient probe(port());
  for (RawClient* client : {&opened, &probe, &busy}) {
    if (client != &busy) client->Send(MakeRequest("GET", "/livez"));
    if (client == &busy) responder->Send({});
    const Response response = client->ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(FindHeader(response.headers, "Connection"), "close");
    EXPECT_TRUE(client->AtEnd());
  }
}

TEST_F(ServerTest, ConnectionsStayOpenAgainAfterADrain) {
  StartServer();
  RawClient before(port());
  server_->BeginDrain();
  before.Send(MakeRequest("GET", "/livez"));
  EXPECT_EQ(FindHeader(before.ReadResponse().headers, "Connection"), "close");
  server_->EndDrain();
  RawClient after(port());
  for (int i = 0; i < 2; ++i) {
    after.Send(MakeRequest("GET", "/livez"));
    EXPECT_EQ(FindHeader(after.ReadResponse().headers, "Connection"), "keep-alive");
  }
}

TEST_F(ServerTest, StopEndsWhatDoesNotEnd) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  std::promise<Gone> gone;
  responder->Watch([&gone](Gone why) { gone.set_value(why); }, {});
  server_->Stop(std::chrono::milliseconds(10));
  EXPECT_EQ(Why(&gone), Gone::kStopped);
  EXPECT_TRUE(client.AtEnd());
}

}  // namespace
}  // namespace skein::services::http
