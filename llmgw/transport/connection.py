"""HTTP/2 on one socket, either end: the only user of h2.

`transport.client` makes the client's, `transport.listener` the server's after it has seen the preface.
Flow control: a channel's bytes are acknowledged when they are consumed; the connection's window is
the sum of its channels' windows, so a channel that nobody reads stalls itself only.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from llmgw.transport.channel import Channel, ChannelClosed
from llmgw.transport.frames import HEAD, FrameHeads
from llmgw.transport.limits import Limits, Silence
from llmgw.transport.settings import Settings
from llmgw.transport.sockets import finish_writing, peer_of, tune_channel
from llmgw.transport.words import ANSWER, asked, taken

log = logging.getLogger(__name__)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

LONGEST_HEAD = 8192
"""Bytes of the headers of one request, as HTTP/2 counts them: 32 more for each."""

SHARE = 0.02
"""Seconds of the loop that one read may take at a time; what is left of it waits for as long as that took."""


class Connection(asyncio.Protocol):
    """One socket's HTTP/2. With `on_channel` it is the server's end, without the client's.

    `heard` = a byte has come; `secure` = nobody on the way reads along. `abused` is told why a peer was cut.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        on_channel: Callable[[Channel], None] | None = None,
        paths: frozenset[str] = frozenset(),
        abused: Callable[[str], None] = log.warning,
    ) -> None:
        self.peer = ""
        self.heard = False
        self.secure = False
        self._limits = limits
        self._on_channel = on_channel
        self._paths = paths
        self._abused = abused
        self._h2 = _state_machine(limits, client=on_channel is None)
        self._loop = asyncio.get_running_loop()
        self._lost = self._loop.create_future()
        self._channels: dict[int, Channel] = {}
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._pings: dict[bytes, asyncio.Future[bool]] = {}
        self._pinged = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._paused = False
        self._full_since = 0.0
        self._said = ""
        self._rest = b""
        self._heads = FrameHeads(preface=len(PREFACE) if on_channel is not None else 0)
        self._silence = Silence(limits, self._loop.time())
        self._empty_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # --- asyncio's side ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport)
        self.secure = transport.get_extra_info("ssl_object") is not None
        tune_channel(transport, self._limits)
        self._h2.initiate_connection()
        extra = self._limits.window * self._limits.channels - 65_535
        self._h2.increment_flow_control_window(extra)
        self._timer = self._loop.call_later(self._limits.ping, self._tick)
        self._flush()

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        self.heard = True
        self._silence.heard(now)
        if self._said:
            return
        if self._rest:
            self._rest += data
        else:
            self._take(data, now)

    def _take(self, data: bytes, began: float) -> None:
        """What came, in turns: who sends much work in one piece keeps nobody else waiting for all of it."""
        at, now, told = 0, began, False
        while at < len(data) and not self._said:
            if now - began > SHARE:
                self._put_off(data[at:], now - began)
                break
            end, stream = self._heads.plain(data, now, self._channels, at=at)
            if end and self._plain(stream, data[at + HEAD : end]):
                at, now = end, now if end == len(data) else self._loop.time()
                continue
            begin, (at, said) = at, self._heads.feed(data, now, self._channels, at=at)
            if said:
                self._abused(f"{self.peer} was cut off: it {said}")
                self.shut(f"{self.peer} {said}", h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
                break
            self._handle_all(data[begin:at])
            now, told = self._loop.time(), True
        if told:  # a word is answered to nobody, a PING at once, and neither makes room
            self._flush()
            self._wake()

    def _plain(self, stream: int, data: bytes) -> bool:
        """Whether it was taken; at the end of a connection nobody has to be told."""
        try:
            if not (taken(self._h2, stream, data) if stream else asked(self._h2)):
                return False
        except h2.exceptions.ProtocolError as error:
            self._broken(error)
        else:
            self._heads.took(stream)
            if stream:
                self._channels[stream].arrived(data, len(data))
            else:
                self._flush()
                self._transport.write(ANSWER + data)
        return True

    def _handle_all(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._handle(event)
        except h2.exceptions.ProtocolError as error:
            self._broken(error)

    def _broken(self, error: h2.exceptions.ProtocolError) -> None:
        self._h2.clear_outbound_data_buffer()  # h2's own goodbye, which gives no reason
        self.shut(f"{self.peer} broke HTTP/2: {str(error) or type(error).__name__}", error.error_code)

    def _put_off(self, rest: bytes, spent: float) -> None:
        self._rest = rest
        self._transport.pause_reading()
        self._loop.call_later(spent, self._go_on)

    def _go_on(self) -> None:
        rest, self._rest = self._rest, b""
        if not self._said:
            self._transport.resume_reading()
            self._take(rest, self._loop.time())

    def pause_writing(self) -> None:
        self._paused, self._full_since = True, self._loop.time()

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"{self.peer} is gone: {exc}" if exc else f"{self.peer} hung up")
        if self._timer is not None:
            self._timer.cancel()
        if not self._lost.done():
            self._lost.set_result(None)

    # --- what came ---------------------------------------------------------------------------

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived(stream_id=stream, headers=headers):
                self._requested(stream, _texts(headers))
            case h2.events.ResponseReceived(stream_id=stream, headers=headers):
                self._answered(stream, int(_texts(headers).get(":status", "0")))
            case h2.events.DataReceived():
                self._data(event)
            case h2.events.StreamEnded(stream_id=stream) if stream in self._channels:
                self._channels[stream].ended(f"{self.peer} closed the channel")
            case h2.events.StreamReset(stream_id=stream) if stream in self._channels:
                self._drop(stream, f"{self.peer} gave the channel up")
            case h2.events.PingAckReceived(ping_data=data):
                self._pong(data)
            case h2.events.ConnectionTerminated():
                farewell = (event.additional_data or b"").decode(errors="replace")
                self._end(f"{self.peer} said goodbye" + (f": {farewell}" if farewell else ""))
                self._transport.close()

    def _requested(self, stream: int, headers: Mapping[str, str]) -> None:
        path = headers.get(":path", "")
        status = 404 if path not in self._paths else 405 if headers.get(":method") != "POST" else 200
        try:
            self._h2.send_headers(stream, [(":status", str(status))], end_stream=status != 200)
            if status != 200 and not self._h2.streams[stream].closed:
                self._h2.reset_stream(stream)  # nothing that is said on it would be heard
        except h2.exceptions.ProtocolError:
            return  # h2 reads a whole piece before it tells: the reset that follows came with it
        if status == 200 and self._on_channel is not None:
            self._on_channel(self._channel(stream, path, headers))

    def _answered(self, stream: int, status: int) -> None:
        if (answer := self._answers.pop(stream, None)) is not None and not answer.done():
            answer.set_result(status)

    def _data(self, event: h2.events.DataReceived) -> None:
        channel = self._channels.get(event.stream_id)
        if channel is None:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        else:
            channel.arrived(event.data, event.flow_controlled_length)

    def _pong(self, data: bytes) -> None:
        if (waiting := self._pings.pop(data, None)) is not None and not waiting.done():
            waiting.set_result(True)

    # --- what channels ask (channel.Carrier) --------------------------------------------------

    async def open(self, path: str, headers: Iterable[tuple[str, str]]) -> Channel:
        """A channel at `path`, once the server has agreed. Raises ChannelClosed."""
        if self._said:
            raise ChannelClosed(self._said)
        stream = self._h2.get_next_available_stream_id()
        answer = self._answers[stream] = self._loop.create_future()
        channel = self._channel(stream, path, {})
        scheme = "https" if self.secure else "http"
        fixed = [(":method", "POST"), (":scheme", scheme), (":authority", self.peer), (":path", path)]
        self._h2.send_headers(stream, [*fixed, *headers])
        self._flush()
        status = await answer
        if status != 200:
            raise ChannelClosed(f"{self.peer} refuses a channel at {path}: HTTP {status}")
        return channel

    def _channel(self, stream: int, path: str, headers: Mapping[str, str]) -> Channel:
        channel = Channel(
            self,
            stream,
            peer=self.peer,
            path=path,
            headers=headers,
            stall=self._limits.timeout,
            together=self._limits.window // 64,
        )
        self._channels[stream] = channel
        return channel

    def write(self, stream: int, data: memoryview) -> int:
        if self._paused:
            return 0
        room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(data))
        if room <= 0:
            return 0
        self._h2.send_data(stream, bytes(data[:room]))
        self._heads.sent(room)
        if self._silence.rides(self._loop.time()):
            self._h2.ping(bytes(8))
        self._flush()
        return room

    async def changed(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def acknowledge(self, stream: int, size: int) -> None:
        if size and not self._said:
            self._h2.acknowledge_received_data(size, stream)
            self._flush()

    def finish(self, stream: int) -> None:
        if self._said or stream not in self._channels:
            return
        self._h2.end_stream(stream)
        self._flush()
        if self._on_channel is not None:
            self._release(stream, h2.errors.ErrorCodes.NO_ERROR)

    def reset(self, stream: int, said: str) -> None:
        if self._said or stream not in self._channels:
            return
        log.info("channel with %s given up: %s", self.peer, said)
        self._release(stream, h2.errors.ErrorCodes.CANCEL)

    def _release(self, stream: int, code: h2.errors.ErrorCodes) -> None:
        if not self._h2.streams[stream].closed:
            self._h2.reset_stream(stream, code)
        self._drop(stream, "this end closed the channel")
        self._flush()
        self._wake()

    async def ping(self, within: float) -> bool:
        if self._said:
            return False
        self._pinged += 1
        data = self._pinged.to_bytes(8, "big")
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._pings[data] = answer
        self._h2.ping(data)
        self._flush()
        try:
            async with asyncio.timeout(within):
                return await answer
        except TimeoutError:
            return False
        finally:
            self._pings.pop(data, None)

    async def released(self) -> None:
        if self._on_channel is None:
            self.shut("the channel was closed")
            await self.closed()

    # --- the end -----------------------------------------------------------------------------

    def shut(self, said: str, code: h2.errors.ErrorCodes = h2.errors.ErrorCodes.NO_ERROR) -> None:
        """Say goodbye and why, deliver what is written; `closed` waits for it."""
        if self._said:
            return
        self._h2.close_connection(code, additional_data=said.encode())
        self._flush()
        self._end(said)
        finish_writing(self._transport)
        self._loop.call_later(self._limits.linger, self._transport.abort)

    async def closed(self) -> None:
        """Until the socket is gone; it gets `linger` seconds to deliver what was written."""
        await asyncio.wait({self._lost}, timeout=self._limits.linger)
        self._transport.abort()

    def abort(self, said: str) -> None:
        """Drop the socket at once."""
        self._end(said)
        self._transport.abort()

    def _end(self, said: str) -> None:
        if self._said:
            return
        self._said = said
        for stream in list(self._channels):
            self._drop(stream, said)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ChannelClosed(said))
        for waiting in self._pings.values():
            if not waiting.done():
                waiting.set_result(False)
        self._wake()

    def _drop(self, stream: int, said: str) -> None:
        channel = self._channels.pop(stream)
        channel.ended(said)
        channel.over(said)
        self.acknowledge(stream, channel.owed())
        if not self._channels:
            self._empty_since = self._loop.time()

    def _tick(self) -> None:
        now = self._loop.time()
        wait = self._silence.check(now)
        if wait is None:
            self.abort(f"{self.peer} did not answer for {self._limits.timeout:g} s")
        elif self._paused and now - self._full_since >= self._limits.timeout:
            self.abort(f"{self.peer} did not read what it was sent for {self._limits.timeout:g} s")
        elif not self._channels and now - self._empty_since >= self._limits.timeout:
            self.shut("no channel was opened")
        elif not self._said:
            if self._silence.doubtful(now):
                self._h2.ping(bytes(8))
                self._flush()
            self._timer = self._loop.call_later(wait, self._tick)

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _state_machine(limits: Limits, *, client: bool) -> h2.connection.H2Connection:
    config = h2.config.H2Configuration(client_side=client, header_encoding=None)
    machine = h2.connection.H2Connection(config=config)
    codes = h2.settings.SettingCodes
    values = {
        codes.INITIAL_WINDOW_SIZE: limits.window,
        codes.MAX_CONCURRENT_STREAMS: limits.channels,
        codes.MAX_HEADER_LIST_SIZE: LONGEST_HEAD,
    }
    if client:
        values[codes.ENABLE_PUSH] = 0
    machine.decoder.max_header_list_size = LONGEST_HEAD  # a peer that never agrees to it is bound too
    machine.local_settings = Settings(client=client, initial_values=values)
    machine.remote_settings = Settings(client=not client, initial_values={})
    return machine


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
