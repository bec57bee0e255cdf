# A browser's side of Action Cable: a WebSocket that subscribes, and the texts that have come.

require "json"
require "socket"
require "websocket/driver"

class CableSocket
  IDENTIFIER = { channel: "OrdersChannel" }.to_json

  attr_reader :url, :texts

  def initialize(port)
    @url = "ws://127.0.0.1:#{port}/cable"
    @tcp = TCPSocket.new("127.0.0.1", port)
    @texts = Queue.new
    @subscribed = Queue.new
    @driver = WebSocket::Driver.client(self, protocols: ["actioncable-v1-json"])
    @driver.on(:message) { |event| take(JSON.parse(event.data)) }
    @driver.start
    Thread.new { read }
    @subscribed.pop
  end

  # The driver's way to the server.
  def write(data)
    @tcp.write(data)
  end

  private

  def read
    loop { @driver.parse(@tcp.readpartial(65_536)) }
  rescue EOFError, SystemCallError
    @texts << nil # the server has ended
  end

  def take(message)
    case message["type"]
    when "welcome" then @driver.text({ command: "subscribe", identifier: IDENTIFIER }.to_json)
    when "confirm_subscription" then @subscribed << true
    when nil then @texts << message["message"]
    end
  end
end
